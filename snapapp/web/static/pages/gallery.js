// The page at /snaps, which the server makes. This script adds what a form cannot do: it sends the browser's time zone,
// keeps empty fields out of the address, and lets two moments be chosen for comparison, also on different pages.

import "/static/parts/times.js";
import { at, put } from "/static/parts/page.js";
import { tab } from "/static/parts/remembered.js";
import { isolated, t } from "/static/parts/words.js";

const KEPT = "chosen";

at("zone").value = Intl.DateTimeFormat().resolvedOptions().timeZone;
at("zone").disabled = false;

at("filters").addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) if (!value.trim()) formData.delete(name);
  if (!formData.has("from") && !formData.has("to")) formData.delete("zone");
});

// --- two of them, side by side ------------------------------------------------------------------------------------

const boxes = document.querySelectorAll("input[data-id]");
const { tenant } = document.querySelector("main").dataset; // a choice made for another tenant is not shown

/** {id, name} of at most two, in the order of choosing. Read each time: on the way back to this page, which the browser
 *  may have kept as it was, another may have been chosen. */
function chosen() {
  const kept = JSON.parse(tab.get(KEPT) ?? "{}");
  return kept.tenant === tenant ? kept.moments : [];
}

function choose(wanted) {
  tab.set(KEPT, JSON.stringify({ tenant, moments: wanted.slice(-2) }));
  show();
}

function show() {
  const moments = chosen();
  for (const box of boxes) box.checked = moments.some(({ id }) => id === box.dataset.id);
  const names = moments.map(({ name }) => name);
  at("chosen").hidden = !moments.length;
  at("compare").hidden = moments.length < 2;
  put(at("chosen-said"), moments.length === 1 ? t("{name} is chosen. Choose another one to compare it with.", { name: names[0] }) : names.map(isolated).join(" · "));
  if (moments.length === 2) at("compare").href = `/snaps/compare?${new URLSearchParams({ a: moments[0].id, b: moments[1].id })}`;
}

for (const box of boxes) {
  box.addEventListener("change", () => {
    const others = chosen().filter(({ id }) => id !== box.dataset.id);
    choose(box.checked ? [...others, { id: box.dataset.id, name: box.dataset.name }] : others);
  });
}
at("unchoose").addEventListener("click", () => choose([]));
addEventListener("pageshow", ({ persisted }) => {
  // back from the browser's cache with typed changes: shows the filters of this page
  if (persisted) at("filters").reset();
  show();
});
