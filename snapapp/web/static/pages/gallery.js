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
const kept = JSON.parse(tab.get(KEPT) ?? "{}");
let chosen = kept.tenant === tenant ? kept.moments : []; // {id, name} of at most two, in the order of choosing

function choose(wanted) {
  chosen = wanted.slice(-2);
  tab.set(KEPT, JSON.stringify({ tenant, moments: chosen }));
  show();
}

function show() {
  for (const box of boxes) box.checked = chosen.some(({ id }) => id === box.dataset.id);
  const names = chosen.map(({ name }) => name);
  at("chosen").hidden = !chosen.length;
  at("compare").hidden = chosen.length < 2;
  put(at("chosen-said"), chosen.length === 1 ? t("{name} is chosen. Choose another one to compare it with.", { name: names[0] }) : names.map(isolated).join(" · "));
  if (chosen.length === 2) at("compare").href = `/snaps/compare?${new URLSearchParams({ a: chosen[0].id, b: chosen[1].id })}`;
}

for (const box of boxes) {
  box.addEventListener("change", () => {
    const others = chosen.filter(({ id }) => id !== box.dataset.id);
    choose(box.checked ? [...others, { id: box.dataset.id, name: box.dataset.name }] : others);
  });
}
at("unchoose").addEventListener("click", () => choose([]));
addEventListener("pageshow", ({ persisted }) => {
  // back from the browser's cache with typed changes: shows the filters of this page
  if (persisted) at("filters").reset();
  show();
});
