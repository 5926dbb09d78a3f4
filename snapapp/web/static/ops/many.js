// Changes many dead letters: counts them first, then changes them step by step, so that no single statement takes long
// and the change can be stopped.

import { at, make, pause, put } from "/static/parts/page.js";
import { change, jobsOf, keepName, name, number, open, saidOf } from "/static/ops/parts.js";

const WORDS = { retry: ["Retry", "retried"], discard: ["Discard", "discarded"] };
const SHOWN = 10; // refusals that are shown
// ms: the longest pause between steps; it is as long as the step, to leave half of the database's time to the queue
const REST = 1000;

let running = null; // the AbortController of the present count or change

/** `filter` as /internal/failures/step takes it. */
export function many(action, filter, words, done) {
  const [verb] = WORDS[action];
  put(at("many-title"), `${verb} failed jobs`);
  put(at("many-which"), words);
  at("many-refused").replaceChildren();
  at("many-name").value = name();
  at("many-name-line").hidden = false;
  at("many-yes").className = action === "discard" ? "danger" : "primary";
  at("many").onclose = () => {
    running?.abort();
    void done();
  };
  open(at("many"));
  at("many-no").focus();
  void count(action, filter);
}

async function count(action, filter) {
  const [verb] = WORDS[action];
  offer("Counting …", "", "Leave it", () => at("many").close());
  at("many-bar").removeAttribute("value");
  let matching = 0;
  const all = await walk({ action, filter, preview: true }, (step) => {
    matching += step.matching;
    put(at("many-said"), `Counting … ${jobsOf(matching)} so far.`);
  });
  if (!all) return;
  at("many-bar").hidden = true;
  if (matching === 0) return end("None of them is left.");
  offer(
    `${jobsOf(matching)} will be ${WORDS[action][1]}. What fails from now on is left alone.`,
    `${verb} ${jobsOf(matching)}`,
    "Leave it",
    () => at("many").close(),
  );
  at("many-yes").onclick = () => void carryOut(action, filter, matching, all.upTo);
  // not where somebody types a name meanwhile, and not where Enter alone would lose something
  if (action !== "discard" && document.activeElement === at("many-no")) at("many-yes").focus();
}

async function carryOut(action, filter, matching, upTo) {
  keepName(at("many-name").value);
  at("many-name-line").hidden = true;
  at("many-bar").hidden = false;
  const [, past] = WORDS[action];
  let done = 0;
  let refused = 0;
  const say = () => `${number(done)} of ${number(matching)} ${past}${refused ? `, ${number(refused)} refused` : ""}`;
  offer(say(), "", "Stop", () => running?.abort());
  const last = await walk({ action, filter, preview: false, upTo }, (step) => {
    done += step.done;
    refused += step.refused;
    at("many-bar").max = Math.max(matching, done + refused);
    at("many-bar").value = done + refused;
    put(at("many-said"), `${say()} …`);
    for (const { why } of step.refusals) {
      if (at("many-refused").children.length < SHOWN) at("many-refused").append(make("li", { textContent: why }));
    }
  });
  if (last === false) return; // the error is shown already
  end(last ? `${say()}.` : `Stopped: ${say()}. The others are as they were.`);
}

/** Runs the steps to the end. Returns the last answer; null if it was stopped, false if a step failed. */
async function walk(wanted, onStep) {
  running?.abort();
  const mine = new AbortController();
  running = mine;
  const run = crypto.randomUUID?.() ?? uuid();
  let step = { next: 0, upTo: wanted.upTo ?? null };
  while (!mine.signal.aborted) {
    const began = performance.now();
    try {
      const body = { ...wanted, run, after: step.next, upTo: step.upTo };
      step = await change("/internal/failures/step", body, { within: 60_000 });
    } catch (error) {
      if (running !== mine) return false;
      end(`It could not go on: ${saidOf(error)}`);
      return false;
    }
    if (running !== mine) return false; // the dialog was closed, and asks about other jobs by now
    if (!at("many").open) return null;
    onStep(step);
    if (step.next === null) return step;
    if (!wanted.preview) await pause(Math.min(REST, performance.now() - began), mine.signal);
  }
  return null;
}

function offer(said, yes, no, onNo) {
  put(at("many-said"), said);
  at("many-yes").hidden = yes === "";
  put(at("many-yes"), yes);
  put(at("many-no"), no);
  at("many-no").onclick = onNo;
}

function end(said) {
  offer(said, "", "Close", () => at("many").close());
  at("many-no").focus();
}

/** A random id for a run. Made here, because browsers have no randomUUID without https, except on localhost. */
function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 15) | 64;
  bytes[8] = (bytes[8] & 63) | 128;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
