// Keeps marks without an answer in this browser, and sends them when the connection is back, also after a reload. Each
// is sent with the Idempotency-Key that it was marked with, so the server makes one snap of it however often it is
// sent.

import { arrange, at, client, make } from "/static/parts/page.js";
import { browser } from "/static/parts/remembered.js";
import { turnOf } from "/static/parts/signed-in.js";
import { clock, isolated, t, told } from "/static/parts/words.js";

const KEPT = "waiting";
const AGAIN_AFTER = 15_000; // ms until the next try, if the browser does not report that it is online
const PASSING = [401, 408, 425, 429]; // statuses of refusals that may pass

const { ask } = client();

let tenant = browser.get("tenant"); // whose turn it was last; only their marks are sent
let sendOne = async () => true;
let sending = false;
let timer = null;
const lines = new Map(); // key and reason -> element, which is reused so that it keeps the focus
const atOnce = new Set(); // keys of marks that are sent for the first time; they are shown only if that fails

let unkept = []; // marks that the browser had no room for; they last as long as the page
let hearForgotten = () => {};
let hearGone = () => {};

const kept = () => JSON.parse(browser.get(KEPT) ?? "[]");
const all = () => [...kept(), ...unkept];
const isWaiting = (key) => all().some((each) => each.key === key);
const ours = () => all().filter((each) => each.tenant === tenant);
const unsent = () => ours().filter(({ refused }) => !refused);

/** Stores the marks; returns whether the browser had room. */
function store(marks) {
  if (marks.length) return browser.keep(KEPT, JSON.stringify(marks));
  browser.forget(KEPT);
  return true;
}

export const isAnyWaiting = () => unsent().length > 0;

/** Keeps a mark, unless it is kept already, and is not refused. */
export function keep({ key, keptAt, wanted, seconds, video }, name) {
  if (unsent().some((each) => each.key === key)) return;
  forget(key);
  atOnce.add(key);
  const mark = { key, keptAt, tenant, wanted, seconds, videoId: video.videoId, name };
  if (!store([...kept(), mark])) unkept.push(mark);
  show();
}

export function forget(key) {
  unkept = unkept.filter((each) => each.key !== key);
  if (isWaiting(key)) store(kept().filter((each) => each.key !== key));
  atOnce.delete(key);
  show();
}

/** Keeps a mark that the server has refused, with the reason, until it is forgotten or sent again by hand. */
export function refuse(key, reason) {
  const refused = (marks) => marks.map((each) => (each.key === key ? { ...each, refused: reason } : each));
  unkept = refused(unkept);
  store(refused(kept()));
  atOnce.delete(key);
  show();
}

/** `listener(key)` is called when the user drops a mark of the list. */
export function onForgotten(listener) {
  hearForgotten = listener;
}

/** `listener(key)` is called when another window has sent or dropped a mark. */
export function onGone(listener) {
  hearGone = listener;
}

/** Whether another window has signed in another tenant or operator, for whom marks of this page would now be sent. */
export const isOthersTurn = () => (browser.get("tenant") ?? tenant) !== tenant;

/** Whether the server has refused a mark for good. Other failures may pass. */
export async function isRefused({ status, isOurs }) {
  if (!isOurs || status < 400 || status >= 500 || PASSING.includes(status)) return false;
  return ask("/v2/session").then((session) => turnOf(session) === tenant, () => false);
}

/** Begins to send the marks of this tenant. `send(mark)` returns whether to go on with the next. */
export function begin(whose, send) {
  tenant = whose;
  // no room to store it: no tenant is better than the previous one
  if (!browser.keep("tenant", whose)) browser.forget("tenant");
  sendOne = send;
  show();
  void sendAll();
}

/** Sends the marks in the order of marking, until the server is found to be away. */
async function sendAll() {
  clearTimeout(timer);
  if (sending) return;
  sending = true;
  try {
    // a mark may be dropped meanwhile
    for (const mark of unsent()) if (isWaiting(mark.key) && !(await sendOne(mark))) break;
  } finally {
    sending = false;
    later();
  }
}

/** Keeps a mark that could not be sent, for a later try. */
export function hold(key) {
  atOnce.delete(key);
  show();
  later();
}

function later() {
  clearTimeout(timer);
  if (isAnyWaiting()) timer = setTimeout(sendAll, AGAIN_AFTER);
}

addEventListener("online", sendAll);
addEventListener("storage", ({ key, oldValue }) => {
  if (key !== KEPT) return;
  for (const each of JSON.parse(oldValue ?? "[]")) if (!isWaiting(each.key)) hearGone(each.key);
  show();
});

function show() {
  const held = ours().filter(({ key }) => !atOnce.has(key));
  draw("waiting", held.filter(({ refused }) => !refused));
  draw("refused", held.filter(({ refused }) => refused));
}

function draw(section, marks) {
  at(section).hidden = !marks.length;
  arrange(at(`${section}-list`), marks.map(lineOf), at("mark"));
}

function lineOf(mark) {
  const name = `${mark.key} ${mark.refused ?? ""}`;
  if (!lines.has(name)) lines.set(name, line(mark));
  return lines.get(name);
}

function line({ key, seconds, name, wanted, refused = "" }) {
  const drop = make("button", { type: "button", className: "link-like", textContent: t("Forget it") });
  drop.setAttribute("aria-label", t("Forget the moment at {at} of {name}", { at: clock(seconds), name }));
  drop.addEventListener("click", () => {
    forget(key);
    hearForgotten(key);
  });
  return make("li", {}, make("b", { textContent: clock(seconds) }), make("span", { textContent: ` ${isolated(name)} · ${isolated(wanted.nickname)} ${refused && `· ${told(refused)} `}` }), drop);
}

show();
