// Marks that the server has not answered yet, kept in this browser: what a broken line or a reload leaves is sent when the
// line is back. Each goes under the key that it was marked with, so the server files it once however often it comes.

import { at, client, make } from "/static/page.js";
import { browser } from "/static/remembered.js";
import { clock, t } from "/static/words.js";

const KEPT = "waiting";
const AGAIN_AFTER = 15_000; // ms, where nothing says that the line is back
const PASSING = [401, 408, 425, 429]; // refused now, and not for good

const { ask } = client();

let tenant = browser.get("tenant"); // the one who signed in last: others' marks are not ours to send
let sendOne = async () => true;
let sending = false;
let timer = null;
const lines = new Map(); // by key: each stays the same element, and keeps the focus that it has
const atOnce = new Set(); // keys: sent for the first time just now, and shown only if the line does not carry them

let unkept = []; // those that the browser had no room for: they last as long as the page
let hearForgotten = () => {};
let hearGone = () => {};

const kept = () => JSON.parse(browser.get(KEPT) ?? "[]");
const all = () => [...kept(), ...unkept];
const isWaiting = (key) => all().some((each) => each.key === key);
const ours = () => all().filter((each) => each.tenant === tenant);

/** Whether the browser has kept them. */
function store(marks) {
  if (marks.length) return browser.keep(KEPT, JSON.stringify(marks));
  browser.forget(KEPT);
  return true;
}

export const isAnyWaiting = () => ours().length > 0;

/** One that waits already stays as it is. */
export function keep({ key, keptAt, wanted, seconds, video }, name) {
  if (isWaiting(key)) return;
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

/** `listener(key)` is called when somebody forgets one in the list. */
export function onForgotten(listener) {
  hearForgotten = listener;
}

/** `listener(key)` is called when another window has sent one, or forgotten it. */
export function onGone(listener) {
  hearGone = listener;
}

/** Another window has signed in somebody else since: what is sent from here now would be sent for them. */
export const isOthersTurn = () => (browser.get("tenant") ?? tenant) !== tenant;

/** Whether the server has said no for good, and to us; anything else may be the line, or the server's bad moment. */
export async function isRefused({ status, isOurs }) {
  if (!isOurs || status < 400 || status >= 500 || PASSING.includes(status)) return false;
  return ask("/v2/session").then(({ code }) => code === tenant, () => false);
}

/** From now on those of this tenant are sent: `send(mark)` says whether the server has answered. */
export function begin(code, send) {
  tenant = code;
  if (!browser.keep("tenant", code)) browser.forget("tenant"); // no room: nobody is better than the one before
  sendOne = send;
  show();
  void sendAll();
}

/** One after the other, in the order of marking; the first that the line does not carry ends it. */
async function sendAll() {
  clearTimeout(timer);
  if (sending) return;
  sending = true;
  try {
    for (const mark of ours()) if (isWaiting(mark.key) && !(await sendOne(mark))) break; // it may be forgotten by then
  } finally {
    sending = false;
    later();
  }
}

/** The line did not carry it. */
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
  at("waiting").hidden = !held.length;
  for (const [key, item] of lines) if (!held.some((each) => each.key === key)) item.remove();
  for (const mark of held) {
    if (!lines.has(mark.key)) lines.set(mark.key, line(mark));
    if (!lines.get(mark.key).isConnected) at("waiting-list").append(lines.get(mark.key));
  }
}

function line({ key, seconds, name, wanted }) {
  const drop = make("button", { type: "button", className: "link-like", textContent: t("Forget it") });
  drop.setAttribute("aria-label", t("Forget the moment at {at} of {name}", { at: clock(seconds), name }));
  drop.addEventListener("click", () => {
    forget(key);
    hearForgotten(key);
  });
  return make("li", {}, make("b", { textContent: clock(seconds) }), make("span", { textContent: ` ${name} · ${wanted.nickname} ` }), drop);
}

show();
