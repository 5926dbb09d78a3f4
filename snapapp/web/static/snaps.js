// The first minute, at the top of the page: a video, moments marked in it, and what becomes of them, live.

import { ask, at, change, make, pause, put, send } from "/static/app.js";

const SHOWN = 6; // snaps
const LOOK_EVERY = 1000; // ms, at a snap that is not finished and at a demo that is being made
const MARKED_WITHIN = 610_000; // ms; SNAPAPP_ASYNC_CREATE=false may answer so late, and to try again marks twice
const LONG = 4000; // ms without a start after which somebody wants to know why

const film = at("film");
const snaps = new Map(); // by id, as the API shows them
const cards = new Map(); // by id
const followed = new Set(); // ids that are asked for until they are finished
let video = null; // the one in the player
let stillAt = 0; // seconds; where it would be if this browser played it
let listening = null;
let opened = null; // the id of the snap in the dialog

/** Links may begin with a public address; this page asks the server that it came from. */
const local = (path) => {
  const url = new URL(path, location.href);
  return url.pathname + url.search;
};
const clock = (seconds) => `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(2).padStart(5, "0")}`;
const nameOf = (snap) => (snap.subject.id === snap.snapId ? "unnamed" : snap.subject.id);
const momentOf = (snap) => snap.resolvedStartSeconds ?? snap.startSeconds ?? 0;

// --- the video --------------------------------------------------------------------------------------------------

async function begin() {
  try {
    await ask("/v2/session");
  } catch (error) {
    at("sign-in").hidden = error.status !== 401;
    if (error.status !== 401) tell(`The snaps are not to be had now: ${error.message}`);
    return;
  }
  at("sign-in").hidden = true;
  await Promise.all([showVideo(), showSnaps()]);
  listen();
}

async function showVideo() {
  const found = (await ask("/v2/videos?sortBy=createdAt&sortDir=asc&limit=20")).items;
  const demo = found.find((each) => each.videoId === film.dataset.demo);
  if (demo) return play(demo, Number(film.dataset.pause));
  const newest = (await ask("/v2/videos?limit=1")).items[0];
  if (newest) play(newest, 0);
  else await explainNoVideo();
}

/** No video yet: the demo is on its way, or there is none and one can be sent. */
async function explainNoVideo() {
  const job = await jobOf("/internal/jobs?kind=demo.prepare&limit=1");
  if (job && !["COMPLETED", "FAILED", "CANCELLED"].includes(job.status)) return waitForDemo(job);
  put(at("film-said"), "There is no video yet. Send one, or type `snapapp demo` for ours.");
  at("other").open = true;
}

async function waitForDemo(job) {
  const percent = job.progress?.percent ?? 0;
  put(at("film-said"), `The demo video is being made, ${percent} %.`);
  if (job.status !== "RUNNING" && Date.now() - Date.parse(job.createdAt) > LONG) {
    put(at("film-said"), `The demo video waits. ${(await jobOf(`/internal/jobs/${job.id}`))?.explain ?? ""}`);
    at("other").open = true;
  }
  await pause(LOOK_EVERY);
  await showVideo();
}

/** The newest job of a list, or the one asked for; null where this browser may not look. */
async function jobOf(path) {
  try {
    const answer = await ask(path);
    return answer.items ? (answer.items[0] ?? null) : answer;
  } catch {
    return null;
  }
}

function play(wanted, seconds) {
  video = wanted;
  stillAt = seconds;
  put(at("film-said"), "");
  film.hidden = false;
  at("still").hidden = true;
  film.src = local(video.contentPath);
  film.addEventListener("loadedmetadata", () => (film.currentTime = Math.min(seconds, film.duration || 0)), { once: true });
  at("mark").disabled = false;
}

film.addEventListener("error", () => {
  if (!video) return;
  film.hidden = true;
  at("still").hidden = false;
  stillAt = Math.round((film.currentTime || stillAt) * 1000) / 1000;
  at("still").src = `/v2/videos/${video.videoId}/frame?at=${stillAt}`;
  put(at("film-said"), `This browser cannot play the video; this is what it shows at ${clock(stillAt)}.`);
});

/** The end itself shows nothing more. */
function marked() {
  if (film.hidden) return stillAt;
  const last = Number.isFinite(film.duration) ? Math.max(0, film.duration - 0.1) : Infinity;
  return Math.round(Math.min(film.currentTime, last) * 1000) / 1000;
}

for (const event of ["timeupdate", "seeked", "loadedmetadata"]) {
  film.addEventListener(event, () => put(at("mark-at"), clock(marked())));
}

// --- marking ----------------------------------------------------------------------------------------------------

async function mark() {
  if (!video || at("mark").disabled) return;
  const subject = at("subject").value.trim();
  const wanted = {
    videoId: video.videoId,
    nickname: "you",
    email: "you@snapapp.example",
    dataFilmagem: new Date().toISOString(),
    startSeconds: marked(),
    durationSeconds: 1,
    snapshotDurationSeconds: 2,
    subject: subject ? { id: subject } : {},
    overlay: { enabled: subject !== "", mode: "SUBJECT_AND_TIMESTAMP" },
  };
  try {
    const snap = await change("/v2/snaps", wanted, MARKED_WITHIN);
    learn(snap);
    recount(snap);
    tell(`Marked at ${clock(wanted.startSeconds)}.`);
    void follow(snap.snapId);
  } catch (error) {
    tell(`The moment was not marked: ${error.message}`);
  }
}

const isTyping = (element) => element.closest("input, textarea, select, [contenteditable]") && element.type !== "checkbox";

at("mark").addEventListener("click", mark);
document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "s" || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!at("by-key").checked || isTyping(event.target) || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  void mark();
});

function tell(words) {
  put(at("mark-said"), words);
}

/** What just happened, and where else it can be seen. */
function recount(snap) {
  const job = snap.job?.jobId;
  const link = (href, textContent) => make("a", { href, textContent });
  at("happened-rows").replaceChildren(
    "One transaction wrote the snap and its job, and was committed before the answer left: ",
    job ? link(`#job-${job}`, `job ${job}`) : "a job",
    " is one row. A child process decodes the moment, and one more transaction publishes the frames and the clip. In ",
    make("code", { textContent: "snapapp psql" }),
    ":",
  );
  put(at("happened-psql"), `SELECT status, progress, result FROM snap_processing_job\n WHERE snap_id = '${snap.snapId}' \\gx`);
  at("happened").hidden = false;
}

// --- what becomes of them ---------------------------------------------------------------------------------------

async function showSnaps() {
  const { items } = await ask(`/v2/snaps?limit=${SHOWN}`);
  for (const snap of items.reverse()) learn(snap);
  at("no-snaps").hidden = snaps.size > 0;
  for (const snap of items) if (snap.status === "PENDING") void follow(snap.snapId);
}

function learn(snap) {
  const before = snaps.get(snap.snapId);
  if (before && before.status !== "PENDING" && snap.status === "PENDING") return; // an answer that was overtaken
  snaps.set(snap.snapId, snap);
  at("no-snaps").hidden = true;
  if (!cards.has(snap.snapId)) add(snap);
  draw(cards.get(snap.snapId), snap);
  if (before?.status === "PENDING" && snap.status !== "PENDING") {
    put(at("spoken"), `Snap ${nameOf(snap)}: ${wordOf(snap)}`);
  }
  if (opened === snap.snapId) describe(snap);
}

function add(snap) {
  const card = {
    picture: make("img", { alt: "", width: 112, height: 63, hidden: true }),
    name: make("b"),
    moment: make("span", { className: "quiet" }),
    state: make("span", { className: "state" }),
    said: make("span", { className: "quiet" }),
  };
  card.button = make(
    "button",
    { type: "button", className: "snap" },
    make("span", { className: "picture" }, card.picture),
    make("span", { className: "facts" }, card.name, card.moment, card.state, card.said),
  );
  card.button.addEventListener("click", () => open(snap.snapId));
  card.item = make("li", {}, card.button);
  cards.set(snap.snapId, card);
  at("snaps").prepend(card.item);
  for (const [id, old] of cards) {
    if (cards.size <= SHOWN) break;
    old.item.remove();
    cards.delete(id);
    snaps.delete(id);
  }
}

function draw(card, snap) {
  put(card.name, nameOf(snap));
  put(card.moment, `at ${clock(momentOf(snap))}`);
  put(card.state, wordOf(snap));
  card.state.dataset.state = snap.status === "PENDING" ? (snap.job?.status ?? "PENDING") : snap.status;
  put(card.said, snap.status === "FAILED" ? (snap.error ?? "") : "");
  const picture = snap.thumbnailPath ?? snap.posterPath;
  card.picture.hidden = !picture;
  if (picture && !card.picture.src) card.picture.src = local(picture);
}

function wordOf(snap) {
  if (snap.status === "COMPLETED") {
    return `${snap.frameCount} ${snap.frameCount === 1 ? "frame" : "frames"}${snap.snapshotVideo ? " + clip" : ""}`;
  }
  if (snap.status === "FAILED") return "failed";
  if (snap.job?.status === "RUNNING") return snap.job.progress?.note || "running";
  return snap.job?.status === "RETRY_WAIT" ? "tries again soon" : "queued";
}

/** Asks until it is finished: events tell sooner, and this what they leave out. */
async function follow(id) {
  if (followed.has(id)) return;
  followed.add(id);
  const began = Date.now();
  while (snaps.get(id)?.status === "PENDING") {
    await pause(LOOK_EVERY);
    if (!document.hidden) await refresh(id);
    const job = snaps.get(id)?.job;
    if (job?.status === "PENDING" && Date.now() - began > LONG) await sayWhy(job.jobId);
  }
  followed.delete(id);
}

async function sayWhy(jobId) {
  const why = (await jobOf(`/internal/jobs/${jobId}`))?.explain;
  tell(`It waits in the queue. ${why ?? "No worker seems to run."}`);
}

async function refresh(id) {
  try {
    learn(await ask(`/v2/snaps/${id}`));
    if (snaps.get(id)?.status === "PENDING") void follow(id);
  } catch (error) {
    if (error.status === 404) forget(id);
  }
}

function forget(id) {
  cards.get(id)?.item.remove();
  cards.delete(id);
  snaps.delete(id);
}

function listen() {
  if (listening) return;
  listening = new EventSource("/v2/events");
  for (const name of ["created", "started", "progress", "retried", "waiting", "completed", "failed", "cancelled"]) {
    listening.addEventListener(`snap.${name}`, hear);
  }
  // From here on nothing is missed, and what happened before is asked for: at the first time, and after a gap.
  for (const name of ["snapshot", "stream.skipped"]) listening.addEventListener(name, () => showSnaps().catch(() => {}));
  listening.addEventListener("error", () => {
    if (listening?.readyState === EventSource.CLOSED) listening = null; // refused: `follow` asks
  });
}

function hear(event) {
  const news = JSON.parse(event.data);
  const snap = snaps.get(news.snapId);
  if (!snap || news.status !== "PENDING") return void refresh(news.snapId);
  learn({ ...snap, job: { ...snap.job, status: news.jobStatus, progress: news.progress } });
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    listening?.close();
    listening = null;
  } else if (video || snaps.size) {
    listen();
    showSnaps().catch(() => {});
  }
});

// --- one of them ------------------------------------------------------------------------------------------------

function open(id) {
  opened = id;
  describe(snaps.get(id));
  at("snap").showModal();
  void refresh(id); // links end some day
}

function describe(snap) {
  put(at("snap-title"), `${nameOf(snap)} at ${clock(momentOf(snap))}`);
  at("snap-state").dataset.state = snap.status;
  put(at("snap-state"), wordOf(snap));
  const body = at("snap-body");
  if (body.dataset.shown === `${snap.snapId} ${snap.status}`) return; // a clip that plays is not begun anew
  body.dataset.shown = `${snap.snapId} ${snap.status}`;
  body.replaceChildren(...[clipOf(snap), framesOf(snap), factsOf(snap)].flat());
}

function clipOf(snap) {
  if (!snap.snapshotVideo) return snap.error ? [make("p", { className: "error", textContent: snap.error })] : [];
  const poster = snap.posterPath ? local(snap.posterPath) : "";
  const clip = make("video", { controls: true, muted: true, loop: true, playsInline: true, poster });
  clip.setAttribute("aria-label", "the clip");
  clip.src = local(snap.snapshotVideo.path);
  return [clip];
}

function framesOf(snap) {
  const pictures = snap.frames.map((frame) => {
    const said = `${clock(frame.timestampSeconds ?? 0)}${frame.isBest ? ", the sharpest" : ""}`;
    const picture = make("img", { src: local(frame.path), alt: `frame ${frame.index}`, loading: "lazy" });
    const link = make("a", { href: local(frame.path), target: "_blank", rel: "noopener" }, picture);
    return make("li", {}, link, make("span", { className: "quiet", textContent: said }));
  });
  return pictures.length ? [make("ol", { className: "frames" }, ...pictures)] : [];
}

function factsOf(snap) {
  const list = make("dl");
  const add = (name, value) => list.append(make("dt", { textContent: name }), make("dd", {}, value));
  for (const each of snap.subject.attributes) add(each.key, String(each.stringValue ?? each.numberValue ?? ""));
  add("marked by", snap.nickname);
  if (snap.videoProbe) add("video", `${snap.videoProbe.width} × ${snap.videoProbe.height}, ${snap.videoProbe.codecName}`);
  add("snap", make("a", { href: `/v2/snaps/${snap.snapId}`, textContent: snap.snapId }));
  if (snap.job) add("its row", make("a", { href: `#job-${snap.job.jobId}`, textContent: `job ${snap.job.jobId}` }));
  return [list];
}

at("snap").addEventListener("close", () => {
  const card = cards.get(opened);
  opened = null;
  delete at("snap-body").dataset.shown;
  at("snap-body").replaceChildren(); // a clip ends with the dialog
  card?.button.focus({ preventScroll: true });
});
at("snap").addEventListener("click", (event) => {
  const isLink = event.target.closest('a[href^="#"]');
  if (isLink || event.target === at("snap")) at("snap").close();
});
at("snap-close").addEventListener("click", () => at("snap").close());

// --- another video ----------------------------------------------------------------------------------------------

at("upload").addEventListener("submit", async (event) => {
  event.preventDefault();
  const file = at("upload-file").files[0];
  if (!file) return put(at("upload-said"), "Choose a file first.");
  put(at("upload-said"), `Sending ${file.name} …`);
  try {
    const headers = { "Content-Type": "application/octet-stream", "X-File-Name": encodeURIComponent(file.name) };
    play(await (await send("/v2/videos", { method: "POST", body: file, headers })).json(), 0);
    put(at("upload-said"), "It is here: press play, and mark a moment.");
  } catch (error) {
    put(at("upload-said"), `It was not taken: ${error.message}`);
  }
});

at("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await change("/v2/session", { token: at("sign-in-token").value.trim() });
    at("sign-in-token").value = "";
    await begin();
  } catch (error) {
    put(at("sign-in-said"), error.message);
  }
});

begin().catch((error) => tell(`The snaps are not to be had now: ${error.message}`));
