// The player: it knows the exact frame that is shown, and moves in the video. A video that the browser cannot play is
// shown as stills from the server, until there is a copy that plays.

import { at, client, leaveAfterChoice, local, pause, put } from "/static/parts/page.js";
import { browser } from "/static/parts/remembered.js";
import { clock, number, t, told } from "/static/parts/words.js";

const LOOK_EVERY = 1000; // ms between two looks at a video that is not examined yet
const AGAIN_AT_LATEST = 15_000; // ms between two tries to get a video that does not come
const LONG = 8000; // ms of waiting after which the reason is shown
const RATES = [0.25, 0.5, 1, 1.5, 2, 4];
const LONGEST = 5; // seconds of a marked interval

const { ask, send } = client();
const film = at("film");
const still = at("still");

let video = null;
let usable = false; // whether moments of the video can be marked
let isStill = false; // whether stills from the server are shown instead of the browser's player
let exact = null; // seconds: the time of the frame on the screen, if the browser tells
let position = 0; // seconds: of the still, or where a loading video will begin
let backwards = 0; // the speed of playing backwards; 0: not backwards
let interval = { from: null, to: null };
let turn = 0; // counts the videos shown, so that answers about an earlier one are dropped
let listeners = [];

/** A frame's time, rounded up to the millisecond: rounded down it would be in the frame before. */
const inMilliseconds = (seconds) => Math.ceil(seconds * 1000 - 0.01) / 1000;

export const player = {
  get video() {
    return video;
  },
  /** Whether a moment can be marked: not before the first frame is shown. */
  get canMark() {
    return usable && (isStill || film.readyState > 0);
  },
  get rate() {
    return video?.videoProbe?.sourceFps || 25;
  },
  get length() {
    // of a file that was cut off, the browser's is as its header promises
    const length = Math.min(video?.videoProbe?.durationSeconds || Infinity, (!isStill && film.duration) || Infinity);
    return Number.isFinite(length) ? length : 0;
  },
  get seconds() {
    if (isStill || !film.readyState) return position;
    return Math.min(exact ?? film.currentTime, Math.max(0, this.length - 0.001));
  },
  get moment() {
    return inMilliseconds(this.seconds);
  },
  get frame() {
    return Math.floor(this.seconds * this.rate + 0.01);
  },
  get interval() {
    return interval;
  },
  /** Whether the player is paused at the frame that is shown at this time. */
  isAt(seconds) {
    const past = seconds - this.seconds;
    return film.paused && past > -0.002 && past < 1 / this.rate;
  },
  onChange(hear) {
    listeners.push(hear);
  },
  /** Clears the interval, which is for one mark only. */
  forgetInterval() {
    changeInterval({ from: null, to: null });
  },
  show,
  goTo,
  pause: () => stop(),
  picture,
};

function tell() {
  for (const hear of listeners) hear();
}

// --- which video ------------------------------------------------------------------------------------------------

/** Shows a video once it is examined, or the reason why it cannot be used. */
async function show(wanted, seconds = 0) {
  const mine = ++turn;
  video = wanted;
  clear();
  tell();
  const began = Date.now();
  while (video.isUpload && !video.videoProbe) {
    say(Date.now() - began < LONG ? t("Looking at what this file is …") : t("This file waits to be examined. If this lasts, tell whoever runs the server."));
    await pause(LOOK_EVERY);
    const found = await ask(`/v2/videos/${wanted.videoId}`).catch(() => video);
    if (mine !== turn) return;
    video = found;
  }
  const probe = video.videoProbe;
  if (probe && !probe.compatible) {
    say(t("This file cannot be used: {reason}", { reason: told(probe.reason ?? "") }), "bad");
    return tell();
  }
  usable = true;
  position = seconds;
  if (probe && probe.playsInBrowsers === false) offerCopy();
  else play(video.contentPath, seconds);
  tell();
}

function clear() {
  usable = isStill = false;
  exact = null;
  position = backwards = 0;
  interval = { from: null, to: null };
  film.pause();
  film.removeAttribute("src");
  film.load();
  film.hidden = still.hidden = true;
  at("copy").hidden = true;
  say("");
}

function say(words, kind = "") {
  put(at("film-said"), words);
  at("film-said").dataset.kind = kind;
  at("screen").classList.toggle("empty", film.hidden && still.hidden);
}

function play(path, seconds) {
  isStill = false;
  still.hidden = true;
  film.hidden = false;
  film.src = local(path);
  say("");
  position = seconds;
}

film.addEventListener("loadedmetadata", () => goTo(position));

film.addEventListener("error", () => {
  if (!video || !film.getAttribute("src")) return;
  position = film.currentTime || position;
  void explainError(film.getAttribute("src"), film.error?.code === MediaError.MEDIA_ERR_NETWORK);
  film.removeAttribute("src");
});

/** Finds out whether the browser cannot play the video, or whether it does not come: then it is waited for. */
async function explainError(path, isNetworkError) {
  const mine = turn;
  film.hidden = true;
  let hasWaited = false;
  for (let wait = LOOK_EVERY; ; wait = Math.min(2 * wait, AGAIN_AT_LATEST)) {
    const flaw = await send(path, { headers: { Range: "bytes=0-0" } }).then(() => null, (error) => error);
    if (mine !== turn) return;
    if (!flaw && (hasWaited || !isNetworkError)) return hasWaited ? play(path, position) : offerCopy();
    say(t("The video does not come: {reason}. It is tried again.", { reason: told(flaw?.message ?? "Failed to fetch") }));
    await pause(wait);
    if (mine !== turn) return;
    hasWaited = true;
  }
}

/** Shows stills, and offers to make a copy that plays. Times in both are those of the original. */
function offerCopy() {
  const mine = turn;
  isStill = true;
  film.hidden = true;
  still.hidden = false;
  at("copy").hidden = false;
  at("copy-make").hidden = false;
  put(at("copy-said"), t("This browser does not play the video ({codec}). You can step through it and mark; a copy that plays takes a while to make.", { codec: video.videoProbe?.codecName ?? "?" }));
  say("");
  goTo(position);
  at("copy-make").onclick = () => makeCopy(mine);
  if (browser.get(`copy:${video.videoId}`)) void makeCopy(mine); // the copy was asked for before
}

async function makeCopy(mine) {
  const { videoId, contentPath } = video;
  browser.set(`copy:${videoId}`, "wanted");
  at("copy-make").hidden = true;
  try {
    while ((await send(`${contentPath}?preview=true`, { headers: { Range: "bytes=0-0" } })).status === 202) {
      if (mine !== turn) return;
      put(at("copy-said"), t("The copy is being made. You can step through the video and mark meanwhile."));
      await pause(2000);
      if (mine !== turn) return;
    }
    if (mine !== turn) return;
    at("copy").hidden = true;
    play(`${contentPath}?preview=true`, position);
  } catch (error) {
    browser.forget(`copy:${videoId}`);
    if (mine === turn) put(at("copy-said"), t("No copy could be made: {reason}", { reason: told(error.message) }));
  }
}

// --- where in it ------------------------------------------------------------------------------------------------

let wantedStill = 0;

function goTo(seconds) {
  const last = player.length ? Math.max(0, player.length - 0.5 / player.rate) : Infinity;
  const target = Math.max(0, Math.min(seconds, last));
  if (!isStill) {
    if (!isShown(target)) exact = null; // within a frame a browser may draw nothing anew
    if (film.readyState) film.currentTime = target;
    else position = target;
    return tell();
  }
  position = inMilliseconds(target);
  clearTimeout(wantedStill);
  wantedStill = setTimeout(showStill, 200); // while a key is held only the last still is loaded
  tell();
}

const isShown = (seconds) => exact !== null && film.paused && seconds >= exact && seconds < exact + 1 / player.rate;

function showStill() {
  still.src = `/v2/videos/${video.videoId}/frame?at=${position}`;
}

still.addEventListener("error", () => video && isStill && say(t("This picture cannot be shown.")));
still.addEventListener("load", () => say(""));

/** Handles a drawn frame. After a jump the browser may report the old frame once more; it is recognized by its time. */
function noteFrame(_, { mediaTime }) {
  const past = film.currentTime - mediaTime;
  if (!film.paused || (past > -0.002 && past < 1.01 / player.rate)) exact = mediaTime;
  tell();
  film.requestVideoFrameCallback(noteFrame);
}

if ("requestVideoFrameCallback" in film) film.requestVideoFrameCallback(noteFrame);
for (const name of ["timeupdate", "seeked", "loadedmetadata", "play", "pause", "ratechange", "durationchange"]) {
  film.addEventListener(name, tell);
}

/** Steps to the middle of another frame, because the time of an edge belongs to two frames. */
function step(frames) {
  stop();
  const { rate, frame } = player;
  goTo(isStill ? (frame + frames) / rate : (exact ?? frame / rate) + (frames + 0.5) / rate);
}

function jump(seconds) {
  goTo((isStill ? position : film.currentTime) + seconds); // a frame may last longer than a jump
}

function toggle() {
  if (isStill || !usable) return;
  if (!film.paused || backwards) return stop();
  void film.play().catch(() => {});
}

function stop() {
  backwards = 0;
  film.pause();
}

for (const option of at("rate").options) option.textContent = `${number(Number(option.value))} ×`;

function setRate(rate) {
  film.playbackRate = rate;
  at("rate").value = String(rate);
}

function faster(by) {
  const place = RATES.indexOf(film.playbackRate);
  setRate(RATES[Math.max(0, Math.min(RATES.length - 1, place + by))] ?? 1);
}

function forwards() {
  if (isStill || !usable) return;
  if (film.paused || backwards) setRate(1);
  else faster(1);
  backwards = 0;
  void film.play().catch(() => {});
}

/** Plays backwards by ten jumps a second, because browsers cannot. */
function rewind() {
  if (isStill || !usable) return jump(-1);
  film.pause();
  backwards = backwards ? Math.min(8, backwards * 2) : 1;
}

setInterval(() => {
  if (!backwards || film.seeking) return;
  goTo(film.currentTime - backwards / 10);
  if (film.currentTime <= 0.01) stop();
}, 100);

// --- an interval ------------------------------------------------------------------------------------------------

function changeInterval(wanted) {
  interval = wanted;
  tell();
}

function setIn() {
  if (usable) changeInterval({ from: player.moment, to: interval.to > player.moment ? interval.to : null });
}

function setOut() {
  if (usable && interval.from !== null && player.moment > interval.from) {
    changeInterval({ from: interval.from, to: Math.min(player.moment, interval.from + LONGEST) });
  }
}

// --- what is on the screen --------------------------------------------------------------------------------------

/** A copy of the picture on the screen, for the form of its moment. */
function picture() {
  const shown = isStill ? still : film;
  const [width, height] = isStill ? [still.naturalWidth, still.naturalHeight] : [film.videoWidth, film.videoHeight];
  const canvas = document.createElement("canvas");
  canvas.width = 320;
  canvas.height = Math.round(320 * (width ? height / width : 9 / 16));
  if (width) canvas.getContext("2d").drawImage(shown, 0, 0, canvas.width, canvas.height);
  return canvas;
}

// --- buttons and keys -------------------------------------------------------------------------------------------

const KEYS = {
  " ": toggle,
  ",": () => step(-1),
  ".": () => step(1),
  "<": () => faster(-1),
  ">": () => faster(1),
  j: rewind,
  k: stop,
  l: forwards,
  i: setIn,
  o: setOut,
  Home: () => goTo(0),
  End: () => goTo(player.length),
};

const HELD = new Set([",", ".", "ArrowLeft", "ArrowRight"]); // they go on while they are held; the others act once

/** Handles a key; returns whether it was one of the player's. */
export function press(event) {
  const arrow = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const act = arrow ? () => jump(arrow * (event.shiftKey ? 5 : 1)) : KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return false;
  if (video && (!event.repeat || HELD.has(event.key))) act();
  return true;
}

for (const [id, act] of [
  ["play", toggle],
  ["back", () => step(-1)],
  ["on", () => step(1)],
  ["in", setIn],
  ["out", setOut],
]) {
  at(id).addEventListener("click", act);
}
film.addEventListener("click", toggle);
at("rate").addEventListener("change", () => setRate(Number(at("rate").value)));
leaveAfterChoice(at("rate"));
at("seek").addEventListener("input", () => {
  stop();
  goTo(Number(at("seek").value));
});

player.onChange(() => {
  const { length, moment, frame } = player;
  const seek = at("seek");
  seek.max = String(length || 1);
  seek.step = String(1 / player.rate);
  seek.value = String(player.seconds);
  seek.setAttribute("aria-valuetext", clock(moment));
  put(at("now"), `${clock(moment)} / ${clock(length)}`);
  put(at("frame"), t("frame {n}", { n: frame }));
  put(at("play"), film.paused && !backwards ? "▶" : "❚❚");
  at("play").setAttribute("aria-label", film.paused && !backwards ? t("Play") : t("Pause"));
  at("controls").hidden = !usable;
  at("play").disabled = at("rate").disabled = isStill;
  drawInterval(length);
});

function drawInterval(length) {
  const { from, to } = interval;
  at("range").hidden = from === null || !length;
  if (at("range").hidden) return put(at("interval"), "");
  const end = to ?? Math.max(from, player.seconds);
  at("range").style.left = `${(100 * from) / length}%`;
  at("range").style.width = `${Math.max(0.3, (100 * (end - from)) / length)}%`;
  put(at("interval"), to === null ? t("from {from}, O ends it", { from: clock(from) }) : t("{from} to {to}", { from: clock(from), to: clock(to) }));
}
