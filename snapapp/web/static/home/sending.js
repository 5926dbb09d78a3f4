// Sends marked moments to the server: at once, or again when the connection is back, and never twice.

import { at, client, put } from "/static/parts/page.js";
import { nameOfVideo } from "/static/home/library.js";
import { player } from "/static/home/player.js";
import * as waiting from "/static/home/waiting.js";
import { clock, t, told } from "/static/parts/words.js";

const MARKED_WITHIN = 610_000; // ms; with SNAPAPP_ASYNC_CREATE=false the answer may take so long
const KEY_HOLDS = 23 * 3_600_000; // ms; after 24 hours the server has forgotten a key, and would mark the moment again

const { ask, send } = client();

export let hear = () => {}; // called when a mark changes

/** `listener(marked)` is called when a moment is marked, and again whenever something about it changes. */
export function onMarks(listener) {
  hear = listener;
}

/** Sends a mark. Sending it again after a failure makes no second snap. A mark that could not be sent is kept for
 *  later. */
export function submit(marked) {
  waiting.keep(marked, nameOfVideo(marked.video));
  marked.error = null;
  marked.waits = false;
  onTheirWay.set(marked.key, marked);
  marked.sent = (async () => {
    try {
      if (waiting.isOthersTurn()) throw new Error("somebody else is signed in");
      const answer = (isKeyOld(marked) && (await findFiled(marked.wanted))) || (await post(marked));
      await learn(marked, answer);
      waiting.forget(marked.key);
    } catch (error) {
      await fail(marked, error);
    }
    hear(marked);
    return marked.snap;
  })();
  return marked.sent;
}

async function learn(marked, answer) {
  marked.etag = answer.headers.get("ETag");
  marked.snap = await answer.json();
  onTheirWay.delete(marked.key);
}

/** Learns of the snap of a mark that another window has sent; false if it was dropped there. */
export async function isFiled(marked) {
  const answer = await findFiled(marked.wanted);
  if (answer) await learn(marked, answer);
  return answer !== null;
}

const isKeyOld = ({ keptAt }) => Date.now() - keptAt >= KEY_HOLDS;

const post = ({ key, wanted }) =>
  send("/v2/snaps", {
    method: "POST",
    body: JSON.stringify(wanted),
    headers: { "Content-Type": "application/json", "Idempotency-Key": key },
    signal: AbortSignal.timeout(MARKED_WITHIN),
  });

/** The snap of a mark, searched among the snaps of its video; null if there is none. */
async function findFiled({ videoId, nickname, startSeconds }) {
  for (let offset = 0, hasMore = true; hasMore; ) {
    const { items, page } = await ask(`/v2/videos/${videoId}/snaps?sortBy=createdAt&sortDir=desc&limit=50&offset=${offset}`);
    const found = items.find((each) => each.nickname === nickname && each.startSeconds === startSeconds);
    if (found) return send(`/v2/snaps/${found.snapId}`);
    offset += items.length;
    hasMore = page.hasMore;
  }
  return null;
}

const onTheirWay = new Map(); // key -> a mark that this page sends or keeps, without an answer so far

export const unanswered = () => [...onTheirWay.values()].filter(({ removed }) => !removed);

let saidKept = ""; // that a moment waits, as it was said last

async function fail(marked, error) {
  marked.error = error.message;
  marked.waits = !(await waiting.isRefused(error));
  marked.isAlone = error.isOurs && error.status === 500; // what the server fails at may be this mark and no other
  if (marked.waits) waiting.hold(marked.key);
  else if (player.video?.videoId === marked.video.videoId) waiting.forget(marked.key); // its card says so
  else waiting.refuse(marked.key, error.message);
  const said = { at: clock(marked.seconds), reason: told(error.message) };
  if (error.status === 401) tell(t("The moment at {at} is kept here until you have signed in again, at the top of this page.", said));
  else if (marked.waits) tell((saidKept = t("The moment at {at} is kept here until the line is back.", said)));
  else tell(t("The moment at {at} was not marked: {reason}", said));
}

/** Sends a kept mark, of this page or an earlier one. Returns whether the ones behind it may be sent, too. */
export async function sendWaiting({ key, keptAt, wanted, seconds, videoId }) {
  const fresh = () => ({ key, keptAt, wanted, seconds, video: { videoId }, picture: null, typed: new Map(), snap: null, removed: false });
  const marked = onTheirWay.get(key) ?? fresh();
  await submit(marked);
  if (!waiting.isAnyWaiting() && at("mark-said").textContent === saidKept) tell("");
  return !marked.waits || marked.isAlone;
}

export function tell(words) {
  put(at("mark-said"), words);
}
