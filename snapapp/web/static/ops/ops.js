// The page at /ops, for operators. Each view has an address. A view is refreshed every few seconds, and at once when
// the stream of jobs reports a change. If the database or the server cannot be reached, the last content stays, with
// its time.

import { Refused, at, make, pause, put } from "/static/parts/page.js";
import { ask, link, saidOf, send } from "/static/ops/parts.js";
import { auditView } from "/static/ops/audit.js";
import { boxView } from "/static/ops/box.js";
import { costsView } from "/static/ops/costs.js";
import { historyView } from "/static/ops/history.js";
import { jobView } from "/static/ops/job.js";
import { jobsView } from "/static/ops/jobs.js";
import { nowView } from "/static/ops/now.js";
import { queuesView } from "/static/ops/queues.js";
import { scheduleView, schedulesView } from "/static/ops/schedules.js";
import { workersView } from "/static/ops/workers.js";
import { tab } from "/static/parts/remembered.js";

const BETWEEN = 1000; // ms at least between two looks, however many events come
const STREAM_AGAIN = 3000;
const STREAM_SILENT = 40_000; // ms without a byte; the server pings every 15 s
// ms; then the stream is closed, because a hidden tab must not hold one of the browser's six connections
const HIDDEN_AFTER = 5000;

// Each view makes { title, element, refresh, every }. `stream` is the query of the stream whose events refresh it.
const VIEWS = [
  [/^\/ops$/, nowView],
  [/^\/ops\/jobs$/, jobsView],
  [/^\/ops\/jobs\/([1-9][0-9]{0,18})$/, jobView],
  [/^\/ops\/queues$/, queuesView],
  [/^\/ops\/history$/, historyView],
  [/^\/ops\/schedules$/, schedulesView],
  [/^\/ops\/schedules\/(.+)$/, scheduleView],
  [/^\/ops\/workers$/, workersView],
  [/^\/ops\/box$/, boxView],
  [/^\/ops\/costs$/, costsView],
  [/^\/ops\/audit$/, auditView],
  [/^/, notHereView],
];

let life = new AbortController(); // ends with the view that is shown
let view = null;
let look = null; // refreshes the view at once
let seenAt = null; // when the last look succeeded

// --- which view --------------------------------------------------------------------------------------------------

function show() {
  const path = location.pathname.replace(/(.)\/$/, "$1");
  const [pattern, make_] = VIEWS.find(([each]) => each.test(path));
  life.abort();
  life = new AbortController();
  seenAt = null;
  view = make_({ parts: pattern.exec(path)?.slice(1).map(decode) ?? [], query: new URLSearchParams(location.search), again, go });
  document.title = `${view.title} · snapapp ops`;
  at("view").replaceChildren(view.element);
  at("away").hidden = true;
  for (const each of document.querySelectorAll("#views a")) {
    const its = each.getAttribute("href");
    const isIt = its === "/ops" ? path === "/ops" : path === its || path.startsWith(`${its}/`);
    isIt ? each.setAttribute("aria-current", "page") : each.removeAttribute("aria-current");
    // on a phone the row is wider than the screen
    if (isIt) at("views").scrollLeft = each.offsetLeft - at("views").offsetLeft - (at("views").clientWidth - each.offsetWidth) / 2;
  }
  void follow(view, life.signal);
  if (typeof view.stream === "string") void listen(view, life.signal);
}

function notHereView() {
  return {
    title: "Not here",
    every: 60_000, // ms between two looks, which say whether the server answers
    element: make("p", { className: "none" }, "There is no page at this address. ", link("/ops", "What happens now")),
    refresh: async () => {},
  };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Navigates to another address of /ops. */
function go(address) {
  history.pushState(null, "", address);
  show();
  scrollTo(0, 0);
  at("view").focus({ preventScroll: true });
}

/** Refreshes the view at once after a change. */
function again() {
  look?.();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const isPlain = link && !event.defaultPrevented && event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  // an SVG link has no properties like `pathname`
  const to = isPlain && new URL(link.getAttribute("href"), location.href);
  if (!isPlain || to.origin !== location.origin || !/^\/ops(\/|$)/.test(to.pathname)) return;
  event.preventDefault();
  go(to.pathname + to.search);
});
addEventListener("popstate", show);

// --- looking -----------------------------------------------------------------------------------------------------

async function follow(its, signal) {
  while (!signal.aborted) {
    const sooner = new AbortController();
    let isWanted = false;
    look = () => {
      isWanted = true;
      sooner.abort();
    };
    const began = performance.now();
    await lookOnce(its, signal);
    if (signal.aborted) return;
    if (!isWanted) await pause(document.hidden ? 60_000 : its.every, AbortSignal.any([signal, sooner.signal]));
    await pause(Math.max(0, BETWEEN - (performance.now() - began)), signal);
  }
}

async function lookOnce(its, signal) {
  const token = tab.get("token");
  try {
    await learnRole();
    await its.refresh(signal);
    if (signal.aborted) return;
    seenAt = new Date();
    showView();
    at("away").hidden = true;
    say("live", its.isListening ? "live" : `asking every ${its.every / 1000} s`);
  } catch (error) {
    if (!signal.aborted) explain(error, token);
  }
}

function explain(error, token) {
  if (error.status === 401 && tab.get("token") !== token) return; // another was typed meanwhile, and is tried next
  if (error.status === 401) return askForToken();
  if (error.status === 403) return explainForbidden(error);
  if (error.status === 404 && !error.isOurs) return explainProxy();
  const isAway = !(error instanceof Refused) || error.status >= 500;
  if (!isAway) return tell(error.message);
  const from = seenAt ? ` What you see is from ${seenAt.toLocaleTimeString()}.` : "";
  put(at("away"), `${saidOf(error)}.${from} The page tries again by itself.`);
  at("away").hidden = false;
  if (!error.isOurs) return say("away", "no answer"); // of the server: a proxy may have given one
  say("away", error.status === 503 ? "the database is away" : "the server failed");
}

function say(state, words) {
  at("link").dataset.state = state;
  put(at("link-said"), words);
}

function tell(words) {
  put(at("notice"), words);
  at("notice").hidden = false;
}

document.addEventListener("visibilitychange", () => !document.hidden && look?.());

// --- the stream, which only tells when to refresh ----------------------------------------------------------------

async function listen(its, signal) {
  while (!signal.aborted) {
    await becomesVisible(signal);
    try {
      await readStream(its, signal);
    } catch {
      // the refresh itself shows what is wrong
    }
    its.isListening = false;
    await pause(STREAM_AGAIN, signal);
  }
}

async function readStream(its, signal) {
  const silent = new AbortController();
  let timer = 0;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(), STREAM_SILENT);
  };
  const hide = () => document.hidden && setTimeout(() => document.hidden && silent.abort(), HIDDEN_AFTER);
  document.addEventListener("visibilitychange", hide);
  alive();
  try {
    const answer = await send(`/internal/jobs/stream${its.stream}`, { signal: AbortSignal.any([signal, silent.signal]) });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    its.isListening = true;
    look?.();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      if (/^event: /m.test(value)) look?.();
    }
  } finally {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", hide);
  }
}

async function becomesVisible(signal) {
  while (document.hidden && !signal.aborted) await pause(1000, signal);
}

// --- signing in --------------------------------------------------------------------------------------------------

/** Hides the buttons that change something from clients who may only read. The server would refuse them too. */
async function learnRole() {
  if (document.body.dataset.role) return;
  const { role } = await ask("/internal/role");
  document.body.dataset.role = role;
  at("reads").hidden = role !== "reader";
}

function askForToken() {
  delete document.body.dataset.role;
  const wasWrong = tab.get("token") !== null;
  tab.forget("token");
  say("waiting", "not allowed in");
  if (wasWrong) put(at("token-said"), "That token is not the one. Try again.");
  if (!at("token").hidden) return;
  at("token").hidden = false;
  at("view").hidden = true;
  at("token-value").focus();
}

function explainForbidden({ message }) {
  const port = location.port ? `:${location.port}` : "";
  say("waiting", "not allowed in");
  at("view").hidden = true;
  if (message.includes("SNAPAPP_INTERNAL_ALLOW")) return tell(`${message}.`); // a token would not help
  at("notice").replaceChildren(
    "The queue is shown only to this machine, because the server has no internal token. Open the page as ",
    make("a", { href: `http://localhost${port}/ops`, textContent: `http://localhost${port}/ops` }),
    " there, or start the server with ",
    make("code", { textContent: "SNAPAPP_INTERNAL_TOKEN" }),
    " set: then this page asks for it.",
  );
  at("notice").hidden = false;
}

/** Says why nothing is shown: a proxy that is set up as in our examples does not forward /internal. */
function explainProxy() {
  say("waiting", "not shown at this address");
  tell("The queue is shown on the server itself, and whoever runs it has closed it at this address.");
}

function showView() {
  at("token").hidden = true;
  at("notice").hidden = true;
  at("view").hidden = false;
}

at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  tab.set("token", at("token-value").value.trim());
  at("token-value").value = "";
  again();
});

show();
