// When a video was filmed: as the file states it, or as somebody entered it in this browser.

import { at, put } from "/static/page.js";
import { player } from "/static/player.js";
import { browser } from "/static/remembered.js";
import { asLocal, t } from "/static/words.js";

const keptFilmed = (video) => browser.get(`filmed:${video.videoId}`);

export function showFilmed() {
  const video = player.video;
  const said = video && keptFilmed(video);
  const found = video?.videoProbe?.filmedAt;
  const from = said ?? found;
  at("filmed").value = from ? asLocal(new Date(from)) : "";
  const source = said ? t("as you said") : found ? t("as the file says: correct it if the camera's clock was wrong") : t("the file does not say: enter it before you mark");
  put(at("filmed-source"), source);
  at("filmed").removeAttribute("aria-invalid");
}

at("filmed").addEventListener("change", () => {
  const { video } = player;
  if (!video) return;
  if (at("filmed").value) browser.set(`filmed:${video.videoId}`, new Date(at("filmed").value).toISOString());
  else browser.forget(`filmed:${video.videoId}`);
  showFilmed();
});

export function filmedAt(video, seconds) {
  const from = keptFilmed(video) ?? video.videoProbe?.filmedAt;
  return from ? new Date(new Date(from).getTime() + 1000 * seconds).toISOString() : null;
}
