// When a video was filmed: as the file states it, or as somebody entered it in this browser.

import { flawOfClock, flawOfFilmed } from "/static/parts/moment.js";
import { at, markInvalid, put, serverTime } from "/static/parts/page.js";
import { player } from "/static/home/player.js";
import { browser } from "/static/parts/remembered.js";
import { asLocal, t } from "/static/parts/words.js";

const AS_SAID = t("as you said");

let flaw = ""; // of the time that is being typed

const keptFilmed = (video) => browser.get(`filmed:${video.videoId}`);

export function showFilmed() {
  const video = player.video;
  const said = video && keptFilmed(video);
  const found = video?.videoProbe?.filmedAt;
  const from = said ?? found;
  flaw = "";
  at("filmed").max = asLocal(serverTime());
  at("filmed").value = from ? asLocal(new Date(from)) : "";
  const source = said ? AS_SAID : found ? t("as the file says: correct it if the camera's clock was wrong") : t("the file does not say: enter it before you mark");
  saySource(source);
  at("filmed").removeAttribute("aria-invalid");
}

function saySource(source) {
  put(at("filmed-source"), [source, flawOfClock()].filter(Boolean).join(". "));
}

at("filmed").addEventListener("change", () => {
  const { video } = player;
  if (!video) return;
  flaw = flawOfFilmed(at("filmed"));
  put(at("filmed-source"), flaw);
  markInvalid(at("filmed"), flaw);
  // while a time is typed, each key is a change: to the year 2, or to half a time, which must not bring the old one back
  if (flaw) return;
  if (at("filmed").value) {
    browser.set(`filmed:${video.videoId}`, new Date(at("filmed").value).toISOString());
    return saySource(AS_SAID); // a value that is set while it is typed takes the focus from the year
  }
  browser.forget(`filmed:${video.videoId}`);
  showFilmed();
});

/** What is wrong with the time that stands in the field: then no moment is marked with the one from before. */
export const flawOfTyped = () => flaw;

/** Whether a time is half typed. Where none stood before, that is no change for the browser, and not yet a flaw. */
export const isHalfTyped = () => Boolean(flaw) || at("filmed").validity.badInput;

export function filmedAt(video, seconds) {
  const from = keptFilmed(video) ?? video.videoProbe?.filmedAt;
  return from ? new Date(new Date(from).getTime() + 1000 * seconds).toISOString() : null;
}
