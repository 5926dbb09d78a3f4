// The moments of the video in the player: a list, newest first, and the timeline. Each shows its state and its actions.

import { arrange, at, client, isAgreed, local, make, pause, put } from "/static/parts/page.js";
import { describe, describeSnap, forgetTarget, isShown, learnName, learnPicture, loseTarget, unsaved } from "/static/home/marking.js";
import { isNamed, momentOf, nameOf, stateOf } from "/static/parts/moment.js";
import { player } from "/static/home/player.js";
import { isFiled, submit, tell, unanswered } from "/static/home/sending.js";
import { mayChange, operator } from "/static/parts/signed-in.js";
import * as waiting from "/static/home/waiting.js";
import { clock, isolated, t, told } from "/static/parts/words.js";

const AT_ONCE = 50; // moments a page
const LOOK_EVERY = 1000; // ms between two looks at an unfinished snap
const ASK_AGAIN = 2000; // ms until moments that could not be read are asked for again
const STREAM_AGAIN = 5000; // ms until a refused stream is asked for again
const LONG = 8000; // ms in the queue after which the reason is shown

const { ask, change } = client();

let shown = null; // the id of the video whose moments are shown
let entries = []; // newest first: known by the server (`snap`), or marked here (`marked`), or both
let listening = null;
let offset = 0;
let turn = 0; // counts what is asked and what is saved, to tell an answer that was overtaken
const followed = new Set();
const deleted = new Set(); // the server may still be answering about them, or telling what they have been
const halfDescribed = new Set(); // moments of videos that were shown before, with text that was not saved

const snapOf = (entry) => entry.snap ?? entry.marked?.snap ?? null;
const entryOf = (id) => entries.find((each) => snapOf(each)?.snapId === id);

export async function showVideo(video) {
  if (shown === video.videoId) return;
  for (const { marked } of entries) if (marked && unsaved(marked)) halfDescribed.add(marked);
  shown = video.videoId;
  entries = [];
  offset = 0;
  at("moments").replaceChildren();
  for (const marked of [...unanswered(), ...[...halfDescribed].filter(unsaved)]) hear(marked);
  paint();
  await begin(video.videoId);
}

/** Reads the newest moments, again and again while the server does not answer, as during a restart. */
async function begin(videoId) {
  for (let isAgain = false; shown === videoId; isAgain = true) {
    try {
      await more();
      if (isAgain) tell("");
      return;
    } catch (error) {
      if (error.status === 404) throw error;
      if (shown === videoId) tell(told(error.message));
    }
    await pause(ASK_AGAIN);
  }
}

const read = (from) => ask(`/v2/videos/${shown}/snaps?sortBy=createdAt&sortDir=desc&limit=${AT_ONCE}&offset=${from}`);

async function more() {
  const mine = shown;
  const from = offset;
  const asked = ++turn;
  const found = await read(from);
  if (mine !== shown || from !== offset) return; // the second answer to a double click: it would leave a page out
  offset += found.items.length;
  for (const snap of found.items) learn(snap, asked);
  for (const snap of found.items.toReversed()) if (isNamed(snap)) learnName(snap.subject.id);
  at("more-moments").hidden = !found.page.hasMore;
}

at("more-moments").addEventListener("click", () => more().catch((error) => tell(told(error.message))));

/** Shows a moment that was marked here, or its changes. */
export function hear(marked) {
  if (marked.removed || marked.video?.videoId !== shown) return;
  const filed = marked.snap && entries.find(({ snap }) => snap?.snapId === marked.snap.snapId);
  let entry = entries.find((each) => each.marked === marked) ?? filed;
  if (entry) entry.marked = marked;
  else entries.unshift((entry = { marked, snap: null, others: marked.snap || marked.error ? [] : entries.filter((each) => isOf(marked, each)) }));
  if (filed && filed !== entry) {
    entry.snap = filed.snap; // an event told of the snap before the server's answer came
    entries = entries.filter((each) => each !== filed);
  }
  if (marked.snap && marked.snap !== entry.heard) learn((entry.heard = marked.snap)); // once: later answers are newer
  paint();
}

const isOf = ({ wanted }, { snap }) => snap?.nickname === wanted.nickname && snap.startSeconds === wanted.startSeconds;

/** The entries that have a card. The snap of a mark whose answer has not come yet, which events or a list may tell of
 *  earlier, has none: the mark's card stands for both. `others` are equal snaps from before the mark. */
function withCards() {
  const open = entries.filter(({ marked, snap }) => marked && !snap);
  return entries.filter((entry) => entry.marked || !open.some(({ marked, others }) => isOf(marked, entry) && !others.includes(entry)));
}

/** Learns of a snap, unless something was saved of it after this answer was asked for: the card would lose its name. */
function learn(snap, asked = ++turn) {
  if (snap.videoId !== shown || deleted.has(snap.snapId)) return;
  const known = entryOf(snap.snapId);
  if (known?.learned > asked) return;
  const before = known && snapOf(known);
  if (known) {
    if (before.status !== "PENDING" && snap.status === "PENDING" && !known.isRetried) return; // an answer from before
    known.snap = { ...snap, job: snap.job ?? before.job };
    known.learned = asked;
    learnPicture(snap);
    noteMove(before, known.snap);
    known.isRetried = false;
  } else {
    const place = entries.findIndex((each) => each.snap && each.snap.createdAt < snap.createdAt);
    entries.splice(place < 0 ? entries.length : place, 0, { snap, marked: null, learned: asked });
  }
  if (before?.status === "PENDING" && snap.status !== "PENDING") {
    put(at("spoken"), `${isolated(nameOf(snap))}, ${clock(momentOf(snap))}: ${stateOf(snap).words}`);
  }
  if (snap.status === "PENDING") void follow(snap.snapId);
  else if (snap.status === "FAILED" && !entryOf(snap.snapId).snap.job) void refresh(snap.snapId); // lists have no job
  paint();
}

// --- the state of a snap ----------------------------------------------------------------------------------------

/** Asks for a snap until it is finished. Events come sooner, but some may be missed. However many are unfinished, they ask
 *  about four times a second together: fifty asked fifty times. */
async function follow(id) {
  if (followed.has(id)) return;
  followed.add(id);
  await null; // until the others of the same answer are followed, too
  const began = Date.now();
  while (entryOf(id) && snapOf(entryOf(id)).status === "PENDING") {
    await pause(LOOK_EVERY * Math.max(1, (followed.size / 4) * (0.5 + Math.random())));
    if (!document.hidden) await refresh(id);
    const waits = entryOf(id)?.snap?.job?.status === "PENDING";
    if (waits && Date.now() - Math.max(began, movedAt) > LONG) tell(STUCK);
  }
  followed.delete(id);
}

const STUCK = t("It waits in the queue. If this lasts, tell whoever runs the server.");
let movedAt = 0; // when a moment was last begun or finished: others that wait behind it are no reason to call anybody

function noteMove(before, after) {
  if (before.status === after.status && before.job?.status === after.job?.status) return;
  movedAt = Date.now();
  if (at("mark-said").textContent === STUCK) tell("");
}

async function refresh(id) {
  if (deleted.has(id)) return; // while `follow` paused, or before its last event came
  const asked = ++turn;
  try {
    learn(await ask(`/v2/snaps/${id}`), asked);
  } catch (error) {
    if (error.status === 404) gone(entryOf(id));
  }
}

/** Takes a moment that somebody else has deleted off the list, unless something is typed for it, to be copied. */
function gone(entry) {
  if (!entry) return;
  const snap = snapOf(entry);
  if (!entry.marked || !unsaved(entry.marked)) return forget(snap.snapId);
  loseTarget(snap.snapId);
  entry.snap = { ...snap, status: "FAILED", error: t("Somebody else has deleted this moment.") };
  paint();
}

function forget(id) {
  deleted.add(id);
  loseTarget(id);
  if (entryOf(id)) offset = Math.max(0, offset - 1); // the older ones have moved up by one
  entries = entries.filter((each) => snapOf(each)?.snapId !== id);
  paint();
}

export function listen() {
  if (listening || document.hidden) return;
  listening = new EventSource("/v2/events");
  listening.addEventListener("snapshot", catchUp); // the first event, also after a break
  for (const name of ["created", "started", "progress", "retried", "waiting", "completed", "failed", "cancelled"]) {
    listening.addEventListener(`snap.${name}`, (event) => heard(JSON.parse(event.data)));
  }
  listening.addEventListener("snap.deleted", (event) => gone(entryOf(JSON.parse(event.data).snapId)));
  listening.addEventListener("error", () => {
    if (listening?.readyState !== EventSource.CLOSED) return;
    listening = null; // refused, as by a proxy whose server restarts; `follow` still asks
    setTimeout(listen, STREAM_AGAIN);
  });
}

/** Learns of the moments that were marked or deleted elsewhere while nothing was heard. */
async function catchUp() {
  const mine = shown;
  const asked = ++turn;
  const found = await read(0).catch(() => null);
  if (!found || mine !== shown) return;
  for (const snap of found.items) learn(snap, asked);
  const since = found.page.hasMore ? found.items.at(-1).createdAt : "";
  for (const { snap } of entries) if (snap?.createdAt > since && !found.items.some((each) => each.snapId === snap.snapId)) void refresh(snap.snapId);
}

function heard(news) {
  const entry = entryOf(news.snapId);
  if (!entry || news.status !== "PENDING") return void refresh(news.snapId);
  const snap = snapOf(entry);
  const { jobStatus: status, attempts, maxAttempts, nextRunAt, progress } = news;
  learn({ ...snap, error: news.error, job: { ...snap.job, status, attempts, maxAttempts, nextRunAt, progress } }, entry.learned);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    listening?.close(); // a hidden page must not hold one of the browser's six connections to the server
    listening = null;
  } else if (shown) listen();
});

// --- how it looks -----------------------------------------------------------------------------------------------

let painting = 0;

function paint() {
  if (!painting) painting = requestAnimationFrame(() => ((painting = 0), draw()));
}

function draw() {
  const visible = withCards();
  arrange(at("moments"), visible.map((entry) => (entry.card ??= card(entry)).item), at("mark"));
  for (const entry of visible) fill(entry);
  at("no-moments").hidden = visible.length > 0 || !shown;
  drawTimeline(visible);
}

function card(entry) {
  const parts = {
    picture: make("img", { alt: "", width: 112, height: 63, hidden: true }),
    name: make("b", { dir: "auto" }),
    time: make("span", { className: "quiet" }),
    state: make("span", { className: "state" }),
    said: make("p", { className: "said-of" }),
    actions: make("div", { className: "does" }),
    made: new Map(), // label -> button or link; one that is pressed or has the focus must stay the same element
  };
  const seek = make(
    "button",
    { type: "button", className: "snap" },
    make("span", { className: "picture" }, parts.picture),
    make("span", { className: "facts" }, parts.name, parts.time, parts.state),
  );
  seek.addEventListener("click", () => {
    player.pause();
    player.goTo(secondsOf(entry));
  });
  parts.item = make("li", {}, seek, parts.said, parts.actions);
  return parts;
}

const secondsOf = (entry) => entry.marked?.seconds ?? momentOf(snapOf(entry));

function fill(entry) {
  const { card: parts, marked } = entry;
  const snap = entry.snap ?? marked?.snap;
  const typed = marked && !isShown(marked) ? unsaved(marked) : "";
  put(parts.name, snap ? nameOf(snap) : t("not described yet"));
  parts.name.classList.toggle("open", !snap || !isNamed(snap));
  put(parts.time, clock(secondsOf(entry)));
  const { state, words } = snap ? stateOf(snap) : marked.waits ? { state: "RETRY_WAIT", words: t("waits for the line") } : marked.error ? { state: "FAILED", words: t("not sent") } : { state: "PENDING", words: t("sending") };
  parts.state.dataset.state = state;
  put(parts.state, words);
  const failure = snap ? (snap.status === "COMPLETED" ? "" : told(snap.error ?? "")) : marked.waits ? "" : told(marked.error ?? "");
  put(parts.said, [failure, typed && t("typed and not saved: {typed}", { typed })].filter(Boolean).join(" · "));
  const picture = snap?.thumbnailPath ?? snap?.posterPath;
  parts.picture.hidden = !picture;
  if (picture && !parts.picture.src) parts.picture.src = local(picture);
  arrange(parts.actions, actionsOf(entry, snap).map(([label, act]) => {
    if (!parts.made.has(label)) parts.made.set(label, actionOf(label, act, entry));
    return parts.made.get(label);
  }));
}

function actionOf(label, act, entry) {
  if (typeof act === "string") return make("a", { href: act, textContent: label });
  const button = make("button", { type: "button", className: "link-like", textContent: label });
  button.addEventListener("click", () => Promise.resolve(act()).catch((error) => explain(entry, error)));
  return button;
}

function explain(entry, error) {
  const isGone = error.status === 404 && snapOf(entry);
  tell(isGone ? t("Somebody else has deleted this moment.") : told(error.message));
  if (isGone) gone(entry);
}

/** What can be done with an entry. Its snap may have changed when it is done. */
function actionsOf(entry, snap) {
  if (!snap) return entry.marked.error ? [[t("Send again"), () => submit(entry.marked)], [t("Forget it"), () => drop(entry.marked)]] : [];
  const open = snap.status === "COMPLETED" ? [[t("Open"), `/snaps/${snap.snapId}`]] : [];
  if (!mayChange(snap)) return open;
  const actions = [[isNamed(snap) ? t("Correct") : t("Describe"), () => describeEntry(entry)], ...open];
  if (snap.status === "FAILED") actions.push([t("Try again"), () => retry(entry)]);
  if (snap.status === "PENDING") actions.push([t("Cancel"), () => cancel(snapOf(entry))]);
  else actions.push([t("Delete"), () => remove(snapOf(entry))]);
  return actions;
}

// Its video may not be the one that is shown.
const markOf = (key) => unanswered().find((each) => each.key === key);

waiting.onForgotten((key) => {
  const marked = markOf(key);
  if (marked) drop(marked);
});

/** Handles a mark that another window has sent or dropped: what was typed for it here stays with it. A mark that this
 *  page is sending itself is left alone. */
waiting.onGone(async (key) => {
  const marked = markOf(key);
  if (!marked?.waits) return;
  if (await isFiled(marked).catch(() => true)) hear(marked);
  else drop(marked);
});

// also when another language is chosen, which loads the page anew
addEventListener("beforeunload", (event) => {
  const marks = [...halfDescribed, ...entries.map(({ marked }) => marked)];
  if (marks.some((marked) => marked && !marked.removed && unsaved(marked))) event.preventDefault();
});

function drop(marked) {
  waiting.forget(marked.key);
  marked.removed = true;
  entries = entries.filter((each) => each.marked !== marked);
  paint();
}

/** Moves the player to an entry's moment and opens its form; nothing is asked of the server if it is open, because
 *  somebody may type into it until the answer comes. */
async function describeEntry(entry) {
  player.pause();
  player.goTo(secondsOf(entry));
  if (entry.marked && (!snapOf(entry) || unsaved(entry.marked) || isShown(entry.marked))) {
    describe(entry.marked);
    return at("fields").querySelector("input").focus();
  }
  await describeSnap(snapOf(entry));
  learnPicture(snapOf(entry)); // which may have been made before the form was open
}

/** Opens the form of the newest moment that is not described yet. */
export function describeNewest() {
  const entry = entries.find((each) => !snapOf(each) || (!isNamed(snapOf(each)) && mayChange(snapOf(each))));
  if (entry) void describeEntry(entry).catch((error) => tell(told(error.message)));
}

async function retry(entry) {
  entry.isRetried = true;
  learn(await change(`/v2/snaps/${snapOf(entry).snapId}/retry`));
}

async function cancel(snap) {
  learn(await change(`/v2/snaps/${snap.snapId}/cancel`, { nickname: operator()?.nickname ?? null }));
}

async function remove(snap) {
  put(at("delete-title"), t("Delete {name} at {at}?", { name: nameOf(snap), at: clock(momentOf(snap)) }));
  if (!(await isAgreed(at("delete")))) return;
  await change(`/v2/snaps/${snap.snapId}`, undefined, { method: "DELETE" }).catch((error) => {
    if (error.status !== 404) throw error; // somebody else was quicker
  });
  forgetTarget(snap.snapId);
  forget(snap.snapId);
}

// --- on the timeline --------------------------------------------------------------------------------------------

function drawTimeline(visible) {
  const { length } = player;
  arrange(at("ticks"), length ? visible.map((entry) => (entry.tick ??= tick(entry))) : []);
  drawnLength = length;
  if (length) for (const entry of visible) place(entry, length);
}

function tick(entry) {
  const button = make("button", { type: "button", className: "tick" });
  button.addEventListener("click", () => (player.pause(), player.goTo(secondsOf(entry))));
  return button;
}

function place(entry, length) {
  const snap = snapOf(entry);
  const words = `${snap ? isolated(nameOf(snap)) : t("not described yet")}, ${clock(secondsOf(entry))}`;
  entry.tick.title = words;
  entry.tick.setAttribute("aria-label", words);
  entry.tick.dataset.state = snap?.status ?? "PENDING";
  entry.tick.style.left = `${(100 * secondsOf(entry)) / length}%`;
}

let drawnLength = 0;
player.onChange(() => player.length !== drawnLength && paint());
