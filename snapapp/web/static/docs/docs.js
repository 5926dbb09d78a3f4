// The page at /docs, which shows /openapi.json to people. Texts are never parsed as HTML.

import { at, make } from "/static/parts/page.js";
import { asText, description, fold, heading, learnDescription, mediaExample, paragraph, pre, recordsIn, resolve, schemaOf, typeOf } from "/static/docs/schema.js";
import { headersOf, isHeader, isOptional, keeper, tryIt } from "/static/docs/try.js";

const NOT_SAID = "Successful Response"; // FastAPI's description of a response without one

// --- one operation ---------------------------------------------------------------------------------------------

function answers(operation) {
  const all = Object.entries(operation.responses).map(([status, answer]) => [status, resolve(answer)]);
  const good = all.filter(([status]) => status < "4");
  const bad = all.filter(([status]) => status >= "4");
  const ofGood = good.map(([status, answer]) => statusLine(status, answer, contents(answer)));
  const ofBad = bad.map(([status, answer]) => statusLine(status, answer, []));
  return [
    heading("Answers"),
    make("ul", { className: "statuses" }, ofGood, ofBad),
    refusals(bad),
  ];
}

function statusLine(status, answer, more) {
  const mark = make("span", { className: "status", textContent: status });
  mark.dataset.class = status[0];
  const said = answer.description && answer.description !== NOT_SAID ? [paragraph(answer.description)] : [];
  return make("li", {}, mark, make("div", {}, said, more));
}

function contents(answer) {
  return Object.entries(answer.content ?? {}).flatMap(([type, media]) => {
    const schema = media.schema ?? {};
    const example = mediaExample(media, false);
    const of = typeOf(schema);
    return [
      make("p", { className: "facts", textContent: of === "string" || of === "any JSON" ? type : `${type}, ${of}` }),
      ...schemaOf(schema, false),
      isHollow(example) ? null : fold("An example", pre(asText(example))),
    ];
  });
}

const isHollow = (example) => example === null || example === "text" || JSON.stringify(example) === "{}";

/** The error answers. Each schema is shown once, with all statuses that use it. */
function refusals(bad) {
  const shapes = new Map();
  for (const [status, answer] of bad) {
    const media = Object.values(answer.content ?? {})[0];
    const key = JSON.stringify(media?.schema ?? null);
    if (media) shapes.set(key, { media, statuses: [...(shapes.get(key)?.statuses ?? []), status] });
  }
  return [...shapes.values()].map(({ media, statuses }) =>
    fold(`What ${statuses.join(", ")} ${statuses.length > 1 ? "look" : "looks"} like`, pre(asText(mediaExample(media, false))), schemaOf(media.schema, false)),
  );
}

function inside(known) {
  const { operation, id } = known;
  const asked = headersOf(operation).join(", ");
  return make(
    "div",
    { className: "inside" },
    operation.description ? paragraph(operation.description) : null,
    make("p", { className: "about" }, make("a", { href: `#${id}`, textContent: `#${id}` }), asked ? ` · asks for ${asked}${isOptional(operation) ? ", or nothing" : ""}` : null, operation.deprecated ? " · deprecated" : null),
    tryIt(known),
    answers(operation),
  );
}

// --- the page --------------------------------------------------------------------------------------------------

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
const operations = new Map(); // by id

function learn() {
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const method of METHODS) {
      const operation = methods[method];
      if (!operation) continue;
      const id = operation.operationId ?? `${method}${path.replace(/\W+/g, "-")}`;
      const known = { id, path, method: method.toUpperCase(), operation, tag: operation.tags?.[0] ?? "other" };
      operations.set(id, { ...known, words: wordsOf(known), ...draw(known) });
    }
  }
}

function wordsOf({ id, path, method, operation, tag }) {
  const names = [...(operation.parameters ?? []).map(resolve), operation].flatMap((each) => [each.name, each.summary, each.description]);
  const bodies = Object.values(resolve(operation.requestBody).content ?? {});
  const inBody = bodies.flatMap((media) => recordsIn(media.schema ?? {})).flatMap(({ plain }) => Object.keys(plain.properties));
  return [id, path, method, tag, ...names, ...inBody].filter(Boolean).join(" ").toLowerCase();
}

function draw({ id, path, method, operation }) {
  const mark = make("span", { className: "method", textContent: method });
  mark.dataset.method = method;
  const title = operation.summary ?? id;
  const summary = make("summary", {}, mark, make("span", { className: "path", textContent: path }), make("span", { className: "title", textContent: title }));
  const link = make("a", { href: `#${id}`, textContent: title, title: `${method} ${path}` });
  const box = make("details", { id, className: "operation" }, summary);
  box.addEventListener("toggle", () => {
    if (!box.open) return;
    fill(id);
    if (location.hash !== `#${id}`) history.replaceState(null, "", `#${id}`);
    markCurrent();
  });
  return { box, item: make("li", {}, link), link };
}

/** Fills an operation's section when it is first opened, because most operations are never looked at. */
function fill(id) {
  const known = operations.get(id);
  if (known.box.childElementCount === 1) known.box.append(inside(known));
}

const groups = []; // {section, title, list, ids}

function arrange() {
  const said = new Map((description.tags ?? []).map((tag) => [tag.name, tag.description ?? ""]));
  const used = [...operations.values()].map((each) => each.tag);
  for (const tag of new Set([...said.keys(), ...used])) {
    const members = [...operations.values()].filter((each) => each.tag === tag);
    if (!members.length) continue;
    const title = make("h2", { textContent: tag });
    const list = make("ul", {}, members.map((each) => each.item));
    const about = said.get(tag) ? paragraph(said.get(tag), "quiet") : null;
    const section = make("section", { className: "group" }, make("h2", { textContent: tag }), about, members.map((each) => each.box));
    groups.push({ section, title, list, members });
  }
  at("docs-operations").replaceChildren(...groups.map((group) => group.section));
  at("docs-contents").replaceChildren(...groups.flatMap((group) => [group.title, group.list]));
}

function search() {
  const wanted = at("docs-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const { section, title, list, members } of groups) {
    let here = 0;
    for (const known of members) {
      const fits = wanted.every((word) => known.words.includes(word));
      known.box.hidden = known.item.hidden = !fits;
      here += fits;
    }
    section.hidden = title.hidden = list.hidden = here === 0;
    found += here;
  }
  at("docs-none").hidden = found > 0;
  at("docs-found").textContent = wanted.length ? `${found} of ${operations.size}` : `${operations.size} operations`;
}

function markCurrent() {
  for (const { id, link } of operations.values()) {
    if (location.hash !== `#${id}`) {
      link.removeAttribute("aria-current");
      continue;
    }
    link.setAttribute("aria-current", "true");
    const list = at("docs-contents"); // not by scrollIntoView, which would move the page too
    list.scrollTop = link.offsetTop - list.offsetTop - list.clientHeight / 2;
  }
}

function showHash() {
  const known = operations.get(location.hash.slice(1));
  if (!known) return;
  if (known.box.hidden) {
    at("docs-search").value = "";
    search();
  }
  fill(known.id);
  known.box.open = true;
  markCurrent();
  known.box.scrollIntoView();
  known.box.firstElementChild.focus({ preventScroll: true });
}

at("docs-search").addEventListener("input", search);
at("docs-search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    at("docs-search").value = "";
    search();
  }
  if (event.key === "Enter") {
    event.preventDefault(); // otherwise the key would also close the section, whose summary has the focus by then
    const first = [...operations.values()].find((known) => !known.box.hidden);
    if (!first) return;
    history.replaceState(null, "", `#${first.id}`);
    showHash();
  }
});

addEventListener("keydown", (event) => {
  const isWriting = event.target.closest?.("input, textarea, select");
  if (event.key !== "/" || isWriting || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  at("docs-search").focus();
});

// --- all of it -------------------------------------------------------------------------------------------------

async function open() {
  try {
    const answer = await fetch("/openapi.json", { signal: AbortSignal.timeout(20_000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    learnDescription(await answer.json());
  } catch (error) {
    at("docs-notice").textContent = `/openapi.json cannot be read: ${error.message}. Reload the page to try again.`;
    at("docs-notice").hidden = false;
    return;
  }
  const { title, version, summary = "" } = description.info;
  at("docs-lead").textContent = `${summary} This is version ${version}.`.trim();
  document.title = `${title} ${version} · API`;
  const schemes = Object.values(description.components?.securitySchemes ?? {});
  at("docs-headers").replaceChildren(...schemes.filter(isHeader).map(keeper));
  learn();
  arrange();
  search();
  showHash();
  addEventListener("hashchange", showHash);
}

void open();
