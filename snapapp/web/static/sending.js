// How a moment that was marked gets to the server: at once, again when the line is back, and once whatever happens.

import { at, client, put } from "/static/page.js";
import { nameOfVideo } from "/static/library.js";
import * as waiting from "/static/waiting.js";
import { clock, t, told } from "/static/words.js";

const MARKED_WITHIN = 610_000; // ms; SNAPAPP_ASYNC_CREATE=false may answer so late
const KEY_HOLDS = 23 * 3_600_000; // ms; the server knows a key for 24 hours, and would file the moment again after

const { ask, send } = client();

export let hear = () => {}; // who is told of marks

/** `listener(marked)` is called when a moment is marked, and again whenever something about it changes. */
export function onMarks(listener) {
  hear = listener;
}

/** Sent again after a failure, it makes no second snap. What only the line did not carry waits for it. */
export function submit(marked) {
  waiting.keep(marked, nameOfVideo(marked.video));
  marked.error = null;
  marked.waits = false;
  onTheirWay.set(marked.key, marked);
  marked.sent = (async () => {
    try {
      if (waiting.isOthersTurn()) throw new Error("somebody else is signed in");
      const answer = (await filedBefore(marked)) ?? (await file(marked));
      marked.etag = answer.headers.get("ETag");
      marked.snap = await answer.json();
      onTheirWay.delete(marked.key);
      waiting.forget(marked.key);
    } catch (error) {
      await fail(marked, error);
    }
    hear(marked);
    return marked.snap;
  })();
  return marked.sent;
}

const file = ({ key, wanted }) =>
  send("/v2/snaps", {
    method: "POST",
    body: JSON.stringify(wanted),
    headers: { "Content-Type": "application/json", "Idempotency-Key": key },
    signal: AbortSignal.timeout(MARKED_WITHIN),
  });

/** One whose key the server may have forgotten is looked for among the moments of its video. */
async function filedBefore({ keptAt, wanted: { videoId, nickname, startSeconds } }) {
  if (Date.now() - keptAt < KEY_HOLDS) return null;
  for (let offset = 0, hasMore = true; hasMore; ) {
    const { items, page } = await ask(`/v2/videos/${videoId}/snaps?sortBy=createdAt&sortDir=desc&limit=50&offset=${offset}`);
    const found = items.find((each) => each.nickname === nickname && each.startSeconds === startSeconds);
    if (found) return send(`/v2/snaps/${found.snapId}`);
    offset += items.length;
    hasMore = page.hasMore;
  }
  return null;
}

const onTheirWay = new Map(); // by key: marked here, or sent from here, and neither answered nor forgotten

export const unanswered = () => [...onTheirWay.values()].filter(({ removed }) => !removed);

async function fail(marked, error) {
  marked.error = error.message;
  marked.waits = !(await waiting.isRefused(error));
  if (marked.waits) waiting.hold(marked.key);
  else waiting.forget(marked.key);
  const said = { at: clock(marked.seconds), reason: told(error.message) };
  if (error.status === 401) {
    at("sign-in").hidden = false;
    tell(t("The moment at {at} is kept here until you have signed in again, at the top of this page.", said));
  } else if (marked.waits) tell(t("The moment at {at} is kept here until the line is back.", said));
  else tell(t("The moment at {at} was not marked: {reason}", said));
}

/** One that waited, of this page or of an earlier one. True: the server has answered. */
export async function sendWaiting({ key, keptAt, wanted, seconds, videoId }) {
  const fresh = () => ({ key, keptAt, wanted, seconds, video: { videoId }, picture: null, typed: new Map(), snap: null, removed: false });
  const marked = onTheirWay.get(key) ?? fresh();
  await submit(marked);
  return !marked.waits;
}

export function tell(words) {
  put(at("mark-said"), words);
}
