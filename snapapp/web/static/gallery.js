// The page at /snaps: every moment of the tenant, narrowed by what stands in the address.

import { at, client, local, make, put } from "/static/page.js";
import { isNamed, momentOf, nameOf, stateOf } from "/static/moment.js";
import { clock, t, told, when } from "/static/words.js";

const AT_ONCE = 48;
const OF_SUBJECT = ["q", "subjectId", "attrKey", "attrValue", "attrMin", "attrMax"];

const { ask } = client();
const form = at("filters");
const fields = [...form.elements].filter((each) => each.name);
let offset = 0;
let turn = 0; // of the newest question: an answer to an older one comes too late

/** What the address says, as the API is asked. */
function asked() {
  const address = new URLSearchParams(location.search);
  const query = new URLSearchParams({ limit: AT_ONCE, offset });
  for (const { name } of fields) {
    const value = (address.get(name) ?? "").trim();
    if (!value) continue;
    if (name === "from") query.set("from", new Date(`${value}T00:00:00`).toISOString());
    else if (name === "to") query.set("to", new Date(new Date(`${value}T00:00:00`).getTime() + 86_400_000).toISOString());
    else query.set(name, name === "attrMin" || name === "attrMax" ? value.replace(",", ".") : value);
  }
  const isOfSubject = OF_SUBJECT.some((name) => query.has(name));
  return `/v2/snaps${isOfSubject ? "/search" : ""}?${query}`;
}

/** The form says what the address says. */
function fill(said) {
  const address = new URLSearchParams(location.search);
  for (const field of fields) field.value = said(address.get(field.name), field.value);
}

async function show() {
  const mine = ++turn;
  try {
    const { items, page } = await ask(asked());
    if (mine !== turn) return;
    if (!offset) at("found").replaceChildren();
    offset += items.length;
    at("found").append(...items.map(card));
    at("more").hidden = !page.hasMore;
    put(at("found-said"), offset ? t("{n} shown", { n: offset + (page.hasMore ? "+" : "") }) : t("Nothing is like this."));
  } catch (error) {
    if (mine !== turn) return;
    put(at("found-said"), told(error.message));
    if (error.status === 401) location.assign("/"); // one signs in there
  }
}

function card(snap) {
  const picture = snap.thumbnailPath ?? snap.posterPath;
  const { state, words } = stateOf(snap);
  const said = make("span", { className: "state", textContent: words });
  said.dataset.state = state;
  const link = make(
    "a",
    { className: "card", href: `/snaps/${snap.snapId}` },
    make("span", { className: "picture" }, picture ? make("img", { src: local(picture), alt: "", loading: "lazy" }) : null),
    make("b", { textContent: nameOf(snap), className: snap.isDraft ? "open" : "" }),
    make("span", { className: "quiet", textContent: `${clock(momentOf(snap))} · ${snap.nickname}` }),
    make("span", { className: "quiet date", textContent: when(snap.createdAt) }),
    said,
  );
  return make("li", {}, link, make("span", { className: "under" }, box(snap), allOf(snap)));
}

/** Where all moments of its subject are. */
function allOf(snap) {
  if (!isNamed(snap)) return null;
  const link = make("a", { href: `/snaps/subject?id=${encodeURIComponent(snap.subject.id)}`, textContent: t("All") });
  link.setAttribute("aria-label", t("Everything of {name}", { name: snap.subject.id }));
  return link;
}

// --- two of them, side by side ------------------------------------------------------------------------------------

let chosen = []; // at most two, the one chosen first first

function box(snap) {
  const input = make("input", { type: "checkbox", checked: chosen.some((each) => each.snapId === snap.snapId) });
  input.dataset.id = snap.snapId;
  input.setAttribute("aria-label", t("Compare {name}, {at}", { name: nameOf(snap), at: clock(momentOf(snap)) }));
  input.addEventListener("change", () => {
    chosen = chosen.filter((each) => each.snapId !== snap.snapId);
    if (input.checked) chosen = [...chosen, snap].slice(-2);
    showChosen();
  });
  return make("label", {}, input, ` ${t("Compare")}`);
}

function showChosen() {
  for (const input of at("found").querySelectorAll("input[data-id]")) {
    input.checked = chosen.some((each) => each.snapId === input.dataset.id);
  }
  at("chosen").hidden = !chosen.length;
  at("compare").hidden = chosen.length < 2;
  put(at("chosen-said"), chosen.length === 1 ? t("{name} is chosen. Choose another one to compare it with.", { name: nameOf(chosen[0]) }) : chosen.map(nameOf).join(" · "));
  if (chosen.length === 2) at("compare").href = `/snaps/compare?${new URLSearchParams({ a: chosen[0].snapId, b: chosen[1].snapId })}`;
}

at("unchoose").addEventListener("click", () => {
  chosen = [];
  showChosen();
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const address = new URLSearchParams(fields.filter((each) => each.value.trim()).map((each) => [each.name, each.value.trim()]));
  history.pushState(null, "", `/snaps${address.size ? `?${address}` : ""}`);
  offset = 0;
  void show();
});
addEventListener("popstate", () => {
  fill((value) => value ?? "");
  offset = 0;
  void show();
});
at("more").addEventListener("click", show);

/** Keys to choose from are those of the templates. */
async function suggest() {
  const { items } = await ask("/v2/templates");
  const keys = new Set(items.flatMap((each) => each.fields.map((field) => field.key)).filter((key) => key !== "id"));
  at("keys").replaceChildren(...[...keys].map((value) => make("option", { value })));
}

fill((value, typed) => value ?? typed); // somebody may have been quicker than this script
void show();
suggest().catch(() => {});
