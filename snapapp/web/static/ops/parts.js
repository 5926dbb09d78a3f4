// The parts that the views of /ops are made of. Texts of jobs are never parsed as HTML.

import { code } from "/static/parts/code.js";
import { Refused, at, client, make, put } from "/static/parts/page.js";
import { browser, tab } from "/static/parts/remembered.js";

const NAME = "ops-name";
export const COUNTED = 1_000; // the server counts the jobs of a queue up to this; one more means "or more"

export const STATES = {
  PENDING: ["○", "pending"],
  RUNNING: ["●", "running"],
  RETRY_WAIT: ["↻", "retry wait"],
  COMPLETED: ["✓", "completed"],
  FAILED: ["✕", "failed"],
  CANCELLED: ["⊘", "cancelled"],
};
export const FINAL = new Set(["COMPLETED", "FAILED", "CANCELLED"]);
export const ENDS = ["completed", "failed", "cancelled", "retried"]; // of attempts, as the history counts them
export const HOUR = 3_600_000; // ms

// --- asking ------------------------------------------------------------------------------------------------------

export const name = () => browser.get(NAME) ?? "";
export const keepName = (said) => browser.set(NAME, said.trim());

function headers() {
  const token = tab.get("token");
  const isToken = token && /^[\x21-\x7e]+$/.test(token); // the browser refuses other characters before it asks the server
  const who = name();
  return { ...(isToken && { "X-Internal-Token": token }), ...(who && { "X-Operator": encodeURIComponent(who) }) };
}

export const { send, ask, change } = client(headers);

/** An error in words. A timeout may mean that the server itself waits for the database. */
export function saidOf(error) {
  if (error instanceof Refused) return error.isOurs ? error.message : `The server does not answer: a proxy says ${error.message}`;
  if (error.name === "TimeoutError") return "There was no answer in time";
  if (/fetch|network|load failed/i.test(error.message)) return "The server does not answer";
  reportError(error); // an error in this page's code must not be shown as a network error
  return `This page has made a mistake: ${error.message}`;
}

/** A query such as "?status=FAILED&kind=…", without empty values. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** The address of the jobs that ended within a time, with further filters. Times are cut to the minute, so that a link
 *  does not change with every look. */
export const endedWithin = (from, until, values = {}) => `/ops/jobs${query({
  ...values, finishedFrom: minute(from), finishedUntil: until === null ? "" : minute(until),
})}`;
export const endedSince = (milliseconds, values = {}) => endedWithin(now() - milliseconds, null, values);
const minute = (at) => new Date(Math.floor(at / 60_000) * 60_000).toISOString().replace(":00.000Z", "Z");

export const NOT_YET = Symbol("it was not asked this time");

/** Runs all tasks, each for its own panel: one failure does not hide the other panels. Throws if all fail. */
export async function loadPanels(panels) {
  const ends = await Promise.allSettled(panels.map(([, load]) => load()));
  const asked = panels.map(([panel], place) => ({ panel, ...ends[place] })).filter((end) => end.value !== NOT_YET);
  for (const { panel, reason } of asked) {
    panel.classList.toggle("stale", reason !== undefined);
    put(panel.querySelector(".trouble"), reason ? `As it was before: ${saidOf(reason)}.` : "");
  }
  const refused = asked.filter((end) => end.reason !== undefined);
  const shutOut = refused.find((end) => end.reason.status === 401 || end.reason.status === 403);
  if (shutOut || refused.length === asked.length) throw (shutOut ?? refused[0]).reason;
}

// --- words -------------------------------------------------------------------------------------------------------

let ahead = 0; // ms that the database's clock is ahead of this browser's

export const learnTime = (text) => (ahead = Date.parse(text) - Date.now());
export const now = () => Date.now() + ahead;

export function span(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 1) return seconds < 0.001 ? "< 1 ms" : `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

export function since(text) {
  const away = now() - Date.parse(text);
  return away < 0 ? `in ${span(-away)}` : `${span(away)} ago`;
}

/** A time, and how long ago that is. Both are text: a title is shown to the mouse only. */
export function moment(text) {
  if (!text) return null;
  const clock = new Date(text).toLocaleString([], { dateStyle: "short", timeStyle: "medium" });
  return make("time", { dateTime: text, textContent: `${clock}, ${since(text)}` });
}

export const number = (value) => value.toLocaleString("en");

/** A number of jobs, with a "+" if the server stopped counting. `of` is how many it counted together with them. */
export const counted = (jobs, of = jobs) => (of > COUNTED ? `${number(Math.min(jobs, COUNTED))}+` : number(jobs));

export function bytes(count) {
  for (const [unit, size] of [["GB", 2 ** 30], ["MB", 2 ** 20]]) if (count >= size) return `${(count / size).toFixed(count < 10 * size ? 1 : 0)} ${unit}`;
  return `${number(Math.round(count / 1024))} kB`;
}

export const sum = (items, field) => items.reduce((total, item) => total + item[field], 0);
export const jobsOf = (count) => `${number(count)} ${count === 1 ? "job" : "jobs"}`;

// --- elements ----------------------------------------------------------------------------------------------------

export const link = (href, text, properties = {}) => make("a", { href, textContent: text, ...properties });
export const jobLink = (id) => link(`/ops/jobs/${id}`, `#${id}`, { className: "id" });

/** A sentence as elements: the jobs in it, and the worker that one runs on, are links. */
export function linked(text) {
  return text.split(/(\bjob \d+|\bon worker \S+)/).flatMap((part, place) => {
    if (place % 2 === 0) return make("span", { textContent: part });
    if (part.startsWith("job ")) return link(`/ops/jobs/${part.slice(4)}`, part);
    return [make("span", { textContent: "on worker " }), link("/ops/workers", part.slice(10))];
  });
}

export function badge(status, word = STATES[status]?.[1] ?? status) {
  const mark = make("span", { ariaHidden: "true", textContent: STATES[status]?.[0] ?? "?" });
  const element = make("span", { className: "state" }, mark, make("span", { textContent: word }));
  element.dataset.state = status;
  return element;
}

/** Says that a queue or a schedule is paused; the title says why. */
export function paused({ pausedReason }) {
  const mark = badge("PAUSED", "paused");
  mark.title = pausedReason ?? "no reason was given";
  return mark;
}

/** A large number with a label; with an address it is a link. */
export function tile(title, value, href, note = "", kind = "") {
  return make(
    href === null ? "div" : "a", { ...(href !== null && { href }), className: `tile ${kind}` },
    make("span", { className: "title", textContent: title }),
    make("b", { textContent: value }),
    make("span", { className: "quiet", textContent: note }),
  );
}

/** A part of a view, with its own error message, and the statement that shows the same in psql. */
export function panel(title, { sql = null, note = "", className = "" } = {}, ...children) {
  const head = make("div", { className: "head" }, make("h2", { textContent: title }));
  if (note) head.append(make("p", { className: "quiet", textContent: note }));
  const trouble = make("p", { className: "trouble", role: "status" });
  const section = make("section", { className: `panel ${className}` }, head, trouble, ...children);
  for (const each of section.querySelectorAll("table")) each.setAttribute("aria-label", title);
  if (sql) head.append(sqlButton(section, sql, title));
  return section;
}

function sqlButton(section, sql, title) {
  const box = code();
  box.hidden = true;
  const button = make("button", { type: "button", className: "sql", textContent: "SQL", title: "The same in psql" });
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-label", `SQL: ${title}`);
  button.addEventListener("click", () => {
    put(box.querySelector("code"), typeof sql === "function" ? sql() : sql);
    box.hidden = !box.hidden;
    button.setAttribute("aria-expanded", String(!box.hidden));
  });
  section.querySelector(".head").after(box);
  return button;
}

/** A text as a quoted SQL literal, whatever it contains. */
export const literal = (text) => `'${String(text).replaceAll("'", "''")}'`;

/** A table whose cells are texts or elements; `columns` are [title, class]. On a small screen each row is a card. */
export function table(columns, empty) {
  const heads = columns.map(([title, className = ""]) => make("th", { scope: "col", className }, title || make("span", { className: "unseen", textContent: "Actions" })));
  const body = make("tbody");
  const whole = make("table", { className: "rows" }, make("thead", {}, make("tr", {}, ...heads)), body);
  const none = make("p", { className: "none", textContent: empty, hidden: true });
  const fill = (rows) => {
    if (isAimedAt(body)) return;
    renew(body, rows.map((cells) => make("tr", {}, ...cells.map((cell, place) => cellOf(cell, place)))));
    whole.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
  };
  const cellOf = (cell, place) => {
    const [title, className = ""] = columns[place];
    const element = make(place ? "td" : "th", place ? {} : { scope: "row" }, cell ?? "");
    element.className = className;
    element.dataset.title = title;
    return element;
  };
  return { element: make("div", { className: "scroll" }, whole, none), fill };
}

/** Replaces the children that differ. Equal children stay the same elements, so that focus and selected text are
 *  kept. */
export function renew(element, children) {
  const focused = [document.activeElement, opener].find((each) => each && element.contains(each));
  const place = focused && focusable(element).indexOf(focused);
  children.forEach((child, at) => {
    const present = element.children[at];
    if (!present) element.append(child);
    else if (!present.isEqualNode(child)) present.replaceWith(child);
  });
  while (element.children.length > children.length) element.lastElementChild.remove();
  if (!focused || focused.isConnected) return;
  const next = focusable(element)[place] ?? focusable(element).at(-1) ?? at("view");
  if (focused === opener) opener = next;
  else next?.focus({ preventScroll: true });
}

let opener = null; // what has opened the dialog that is shown, or what took its place in a list that was renewed

/** Shows a dialog; when it closes the keyboard is back where it was. A browser gives it to no element that has gone. */
export function open(dialog) {
  if (dialog.open) return;
  opener = document.activeElement;
  dialog.addEventListener("close", () => {
    opener?.focus({ preventScroll: true });
    opener = null;
  }, { once: true });
  dialog.showModal();
}

/** Renews text that somebody may be reading: a fold stays as they left it, and selected text may be about to be
 *  copied. */
export function renewAroundFolds(element, children) {
  if (element.contains(getSelection().anchorNode) && !getSelection().isCollapsed) return;
  const were = new Map([...element.querySelectorAll("details")].map((fold) => [fold.dataset.key, fold.open]));
  for (const fold of make("div", {}, ...children).querySelectorAll("details")) fold.open = were.get(fold.dataset.key) ?? fold.open;
  renew(element, children);
}

const focusable = (element) => [...element.querySelectorAll("a, button, summary")];

// A view is not repainted while the pointer moves, so that no button moves away under it.
const AIMING = 1500; // ms after the pointer moved last
let movedAt = -Infinity;
document.addEventListener("pointermove", () => (movedAt = performance.now()), { passive: true });
const isAimedAt = (body) => performance.now() - movedAt < AIMING && body.querySelector("button:hover, a:hover") !== null;

export function button(text, onClick, properties = {}) {
  const element = make("button", { type: "button", textContent: text, ...properties });
  element.addEventListener("click", onClick);
  return element;
}

/** A button that changes something; it is hidden from clients who may only read. */
export function changeButton(text, onClick, { className = "", ...properties } = {}) {
  return button(text, onClick, { ...properties, className: `${className} changes`.trim() });
}

export function folded(title, text, { open = false } = {}) {
  const fold = make("details", { className: "fold", open }, make("summary", { textContent: title }));
  fold.append(make("pre", { textContent: text, tabIndex: 0 }));
  fold.dataset.key = title;
  return fold;
}

export function speak(words) {
  put(at("spoken"), words);
}

// --- changes, which are confirmed first --------------------------------------------------------------------------

let shown = 0; // counts the questions: the answer to an earlier one, whose dialog was left, must not close the next

/** Asks for confirmation, then makes the change. If the server refuses, the dialog stays open with the reason. Where
 *  something is lost, Enter alone loses nothing. */
export function sure({ title, text, yes, danger = false, reason = false, act, done = () => {} }) {
  const mine = ++shown;
  put(at("sure-title"), title);
  put(at("sure-text"), text);
  put(at("sure-yes"), yes);
  put(at("sure-said"), "");
  at("sure-yes").className = danger ? "danger" : "primary";
  at("sure-yes").disabled = false;
  at("sure-reason-line").hidden = !reason;
  at("sure-reason").value = "";
  at("sure-name").value = name();
  at("sure-yes").onclick = async (event) => {
    event.preventDefault(); // a form in a dialog would close it
    keepName(at("sure-name").value);
    at("sure-yes").disabled = true;
    try {
      const answer = await act(at("sure-reason").value.trim() || null);
      if (mine !== shown) return;
      at("sure").close();
      speak(`${title}: done.`);
      await done(answer);
    } catch (error) {
      put(at("sure-said"), mine === shown ? saidOf(error) : `${title}: ${saidOf(error)}`);
      if (mine !== shown) return;
      open(at("sure")); // whoever has left it believes that it is done
      at("sure-yes").disabled = false;
      at("sure-yes").focus();
    }
  };
  open(at("sure"));
  at(reason ? "sure-reason" : danger ? "sure-no" : "sure-yes").focus();
}

/** The button that pauses or resumes a queue or a schedule. `pause` and `resume` say what that means. */
export function pauseSwitch({ pausedAt }, { name, noun, path, pause, resume, again }) {
  const verb = pausedAt ? "Resume" : "Pause";
  return changeButton(pausedAt ? "Resume" : "Pause …", () => sure({
    title: `${verb} ${name}`, text: pausedAt ? resume : pause, yes: `${verb} ${noun}`, reason: !pausedAt,
    act: (reason) => change(`${path}/${verb.toLowerCase()}`, pausedAt ? undefined : { reason }), done: again,
  }));
}
