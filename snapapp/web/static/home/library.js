// The list of videos, searched by name and page by page, and the videos opened last.

import { arrange, at, client, make, pause, put } from "/static/parts/page.js";
import { browser } from "/static/parts/remembered.js";
import { clock, size, t, told, when } from "/static/parts/words.js";

const AT_ONCE = 20; // videos a page
const OPENED = 6; // videos that are remembered as opened last
const LOOK_EVERY = 2000; // ms between two looks at a video that is not examined yet, and for the demo's video
const TYPED = 300; // ms after the last key until the search begins

const { ask, change } = client();

let open = () => {};
let known = []; // the videos that match the search, newest first
let offset = 0;
let opened = []; // in this browser, the last one first
let chosen = null;
let question = 0; // the number of the last search: answers to earlier ones are dropped
let typing;

/** `show(video)` is called when a video is chosen. */
export async function begin(show) {
  open = show;
  await Promise.all([more(), remember()]);
  return known;
}

export const nameOfVideo = (video) => video.fileName ?? video.videoUrl?.split(/[?#]/)[0].split("/").pop() ?? t("a video");

async function more(from = offset) {
  const asked = (question += 1);
  const words = at("video-find").value.trim();
  const found = await ask(`/v2/videos?${new URLSearchParams({ limit: AT_ONCE, offset: from, q: words })}`);
  if (asked !== question) return;
  offset = from + found.items.length;
  const had = from ? known : [];
  const isNew = (video) => !had.some((each) => each.videoId === video.videoId);
  known = [...had, ...found.items.filter(isNew)];
  known.forEach(examine);
  at("more-videos").hidden = !found.page.hasMore;
  at("find-line").hidden = !words && !found.page.hasMore && known.length < OPENED;
  put(at("no-videos"), words ? t("No video is called so.") : t("No video yet."));
  paint();
}

const complain = (error) => put(at("upload-said"), told(error.message));

at("more-videos").addEventListener("click", () => more().catch(complain));
at("video-find").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => more(0).catch(complain), TYPED);
});

// --- opened last ------------------------------------------------------------------------------------------------

async function remember() {
  const ids = JSON.parse(browser.get("opened") ?? "[]");
  const found = await Promise.all(ids.map((id) => ask(`/v2/videos/${id}`).catch(() => null)));
  opened = found.filter(Boolean);
}

export const lastOpened = () => opened[0] ?? null;

function keepOpened(video) {
  opened = [video, ...opened.filter((each) => each.videoId !== video.videoId)].slice(0, OPENED);
  browser.set("opened", JSON.stringify(opened.map((each) => each.videoId)));
}

/** Waits for the demo's video, which a new installation is still making; null if another one was sent meanwhile. */
export async function firstVideo() {
  for (;;) {
    await pause(LOOK_EVERY);
    if (known.length) return null;
    const found = document.hidden ? [] : await ask("/v2/videos?limit=1").then(({ items }) => items, () => []);
    if (known.length) return null;
    if (!found.length) continue;
    learn(found[0], true);
    return found[0];
  }
}

export function learn(video, isNew = false) {
  const renewed = (list) => list.map((each) => (each.videoId === video.videoId ? video : each));
  if (isNew && !known.some((each) => each.videoId === video.videoId)) known.unshift(video);
  [known, opened] = [renewed(known), renewed(opened)];
  paint();
  examine(video);
}

/** Asks for an upload until a job has examined it. */
function examine(video) {
  if (video.isUpload && !video.videoProbe && !awaited.has(video.videoId)) void look(video);
}

const awaited = new Set(); // ids of videos that `look` waits for

async function look(video) {
  awaited.add(video.videoId);
  await pause(LOOK_EVERY);
  const found = document.hidden ? video : await ask(`/v2/videos/${video.videoId}`).catch(({ status }) => (status === 404 ? null : video));
  awaited.delete(video.videoId);
  if (found) learn(found);
}

export function choose(video) {
  chosen = video.videoId;
  keepOpened(video);
  paint();
}

function paint() {
  const focused = document.querySelector(".video:focus-visible")?.dataset.id; // after a click the keys are the player's
  draw(at("videos"), known);
  const others = opened.filter((each) => each.videoId !== chosen);
  draw(at("opened"), others);
  at("opened-line").hidden = !others.length || known.length < OPENED;
  at("no-videos").hidden = known.length > 0;
  if (focused) document.querySelector(`.video[data-id="${focused}"]`)?.focus({ preventScroll: true });
}

/** Draws a list. Lines that are as they were stay the same elements: a press on one that is replaced does nothing. */
function draw(list, videos) {
  const old = new Map([...list.children].map((each) => [each.firstElementChild.dataset.id, each]));
  const drawn = videos.map(line);
  arrange(list, drawn.map((each) => {
    const before = old.get(each.firstElementChild.dataset.id);
    return before?.isEqualNode(each) ? before : each;
  }));
}

function line(video) {
  const probe = video.videoProbe;
  const facts = [];
  if (probe?.compatible && probe.durationSeconds) facts.push(clock(probe.durationSeconds).replace(/[.,]\d+$/, ""));
  if (video.sizeBytes) facts.push(size(video.sizeBytes));
  facts.push(when(video.createdAt));
  const words = probe && !probe.compatible ? t("cannot be used") : video.isUpload && !probe ? t("being examined") : "";
  const state = make("span", { className: "state", textContent: words });
  state.dataset.state = probe && !probe.compatible ? "FAILED" : "RUNNING";
  const button = make(
    "button",
    { type: "button", className: "video" },
    make("b", { dir: "auto", textContent: nameOfVideo(video) }),
    make("span", { className: "quiet", textContent: facts.join(" · ") }),
    words ? state : null,
  );
  button.dataset.id = video.videoId;
  if (video.videoId === chosen) button.setAttribute("aria-current", "true");
  button.addEventListener("click", () => open([...known, ...opened].find(({ videoId }) => videoId === video.videoId)));
  return make("li", {}, button);
}

/** Deletes a video. The server refuses if the video has snaps. */
export async function remove(video) {
  await change(`/v2/videos/${video.videoId}`, undefined, { method: "DELETE" });
  const isOther = (each) => each.videoId !== video.videoId;
  [known, opened] = [known.filter(isOther), opened.filter(isOther)];
  browser.set("opened", JSON.stringify(opened.map((each) => each.videoId)));
  paint();
}
