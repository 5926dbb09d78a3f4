// The videos that are there, and those on their way: several files, one after the other, each with its progress.

import { at, client, make, pause, put } from "/static/page.js";
import { clock, size, t, told, when } from "/static/words.js";

const AT_ONCE = 20; // videos a page
const LOOK_EVERY = 2000; // ms, at one that is not examined, and for the first one

const { ask, change } = client();

let open = () => {};
let known = []; // newest first
let offset = 0;
let chosen = null;
const waiting = []; // files

/** `show(video)` is called for the one that somebody chooses. */
export async function begin(show) {
  open = show;
  await more();
  return known;
}

export const nameOfVideo = (video) => video.fileName ?? video.videoUrl?.split(/[?#]/)[0].split("/").pop() ?? t("a video");

async function more() {
  const found = await ask(`/v2/videos?limit=${AT_ONCE}&offset=${offset}`);
  offset += found.items.length;
  for (const video of found.items) learn(video);
  at("more-videos").hidden = !found.page.hasMore;
}

at("more-videos").addEventListener("click", () => more().catch((error) => put(at("upload-said"), told(error.message))));

/** The first video of a new installation comes by itself: the demo is being painted. Null: one was sent meanwhile. */
export async function firstVideo() {
  for (;;) {
    await pause(LOOK_EVERY);
    if (known.length) return null;
    const found = document.hidden ? [] : await ask("/v2/videos?limit=1").then(({ items }) => items, () => []);
    if (known.length) return null;
    if (!found.length) continue;
    offset += 1;
    learn(found[0]);
    return found[0];
  }
}

export function learn(video, isNew = false) {
  const place = known.findIndex((each) => each.videoId === video.videoId);
  if (place >= 0) known[place] = video;
  else if (isNew) known.unshift(video);
  else known.push(video);
  paint();
  if (video.isUpload && !video.videoProbe) void look(video.videoId);
}

async function look(id) {
  await pause(LOOK_EVERY);
  const found = document.hidden ? known.find((each) => each.videoId === id) : await ask(`/v2/videos/${id}`).catch(() => null);
  if (found) learn(found);
}

export function choose(video) {
  chosen = video.videoId;
  paint();
}

function paint() {
  at("videos").replaceChildren(...known.map(line));
  at("no-videos").hidden = known.length > 0;
}

function line(video) {
  const probe = video.videoProbe;
  const facts = [];
  if (probe?.compatible && probe.durationSeconds) facts.push(clock(probe.durationSeconds).replace(/\.\d+$/, ""));
  if (video.sizeBytes) facts.push(size(video.sizeBytes));
  facts.push(when(video.createdAt));
  const words = probe && !probe.compatible ? t("cannot be used") : video.isUpload && !probe ? t("being examined") : "";
  const state = make("span", { className: "state", textContent: words });
  state.dataset.state = probe && !probe.compatible ? "FAILED" : "RUNNING";
  const button = make(
    "button",
    { type: "button", className: "video" },
    make("b", { textContent: nameOfVideo(video) }),
    make("span", { className: "quiet", textContent: facts.join(" · ") }),
    words ? state : null,
  );
  button.dataset.id = video.videoId;
  if (video.videoId === chosen) button.setAttribute("aria-current", "true");
  button.addEventListener("click", () => open(video));
  return make("li", {}, button);
}

/** One without snaps goes; the server says what still needs it. */
export async function remove(video) {
  await change(`/v2/videos/${video.videoId}`, undefined, { method: "DELETE" });
  known = known.filter((each) => each.videoId !== video.videoId);
  paint();
}

// --- uploads ----------------------------------------------------------------------------------------------------

let sending = false;

at("upload-file").addEventListener("change", () => {
  for (const file of at("upload-file").files) waiting.push(queued(file));
  at("upload-file").value = "";
  if (!sending) void sendAll();
});

for (const name of ["dragover", "drop"]) {
  document.addEventListener(name, (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    if (name !== "drop") return;
    for (const file of event.dataTransfer.files) waiting.push(queued(file));
    if (!sending) void sendAll();
  });
}

function queued(file) {
  const upload = {
    file,
    bar: make("progress", { max: 100, value: 0 }),
    said: make("span", { className: "quiet", textContent: t("waits") }),
    stop: make("button", { type: "button", className: "link-like", textContent: t("Cancel") }),
    request: null,
    isOver: false,
  };
  upload.bar.setAttribute("aria-label", file.name);
  upload.item = make("li", {}, make("b", { textContent: file.name }), upload.bar, upload.said, upload.stop);
  upload.stop.addEventListener("click", () => {
    if (upload.isOver) return upload.item.remove();
    upload.request?.abort();
    ended(upload, t("cancelled"));
  });
  at("uploads").append(upload.item);
  return upload;
}

function ended(upload, words) {
  upload.isOver = true;
  upload.bar.hidden = true;
  put(upload.said, words);
  put(upload.stop, t("Forget it"));
}

async function sendAll() {
  sending = true;
  for (let upload = waiting.shift(); upload; upload = waiting.shift()) {
    if (upload.isOver) continue;
    try {
      const video = await sent(upload);
      upload.item.remove();
      put(at("upload-said"), t("{name} is here.", { name: upload.file.name }));
      learn(video, true);
      if (!waiting.length) open(video);
    } catch (error) {
      if (!upload.isOver) ended(upload, t("not taken: {reason}", { reason: told(error.message) }));
    }
  }
  sending = false;
}

/** By XMLHttpRequest, which alone says how far it is. */
function sent(upload) {
  const request = new XMLHttpRequest();
  upload.request = request;
  request.open("POST", "/v2/videos");
  request.setRequestHeader("Content-Type", "application/octet-stream");
  request.setRequestHeader("X-File-Name", encodeURIComponent(upload.file.name));
  request.responseType = "json";
  request.upload.addEventListener("progress", ({ loaded, total }) => {
    upload.bar.value = (100 * loaded) / total;
    put(upload.said, t("{done} of {all}", { done: size(loaded), all: size(total) }));
  });
  return new Promise((done, refuse) => {
    request.addEventListener("load", () => {
      if (request.status < 300) return done(request.response);
      refuse(new Error(request.response?.message ?? `status ${request.status}`));
    });
    request.addEventListener("error", () => refuse(new Error(t("the line broke, or the server takes no file as large"))));
    request.addEventListener("abort", () => refuse(new Error(t("cancelled"))));
    request.send(upload.file);
  });
}
