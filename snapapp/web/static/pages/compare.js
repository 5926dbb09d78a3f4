// The page at /snaps/compare: plays, stops and steps two clips together, each from its own moment. Without this script
// each clip has its own controls.

import "/static/parts/times.js";
import { at, leaveAfterChoice, put } from "/static/parts/page.js";
import { clock, t } from "/static/parts/words.js";

const APART = 0.06; // s that one clip may be behind the other before it is moved
const pair = document.querySelector(".pair");
const films = [...pair.querySelectorAll("video")];
const frame = 1 / Number(pair.dataset.rate);

/** The longer clip, which sets the time; the other one waits at its end. */
const leader = () => (films[0].duration >= films[1].duration ? films[0] : films[1]);
const length = () => leader().duration;

function goTo(seconds) {
  const target = Math.max(0, Math.min(seconds, length()));
  for (const film of films) film.currentTime = Math.min(target, film.duration);
  tell(target);
}

function play() {
  if (leader().ended || length() - leader().currentTime < frame / 2) goTo(0);
  for (const film of films) if (film.duration - film.currentTime > frame / 2) void film.play().catch(() => {});
}

function stop() {
  for (const film of films) film.pause();
  goTo(leader().currentTime);
}

const toggle = () => (leader().paused ? play() : stop());

/** Steps to the middle of a frame, because the time of an edge belongs to two frames. */
function step(frames) {
  for (const film of films) film.pause();
  goTo((Math.floor(leader().currentTime / frame + 0.01) + frames + 0.5) * frame);
}

function keepTogether() {
  const first = leader();
  for (const film of films) {
    if (film === first || first.paused || film.seeking) continue;
    const target = Math.min(first.currentTime, film.duration);
    if (Math.abs(film.currentTime - target) > APART) film.currentTime = target;
  }
  if (!first.seeking) tell(first.currentTime);
}

function tell(seconds) {
  at("seek").value = String(seconds);
  at("seek").setAttribute("aria-valuetext", clock(seconds));
  put(at("now"), `${clock(seconds)} / ${clock(length())}`);
  put(at("play"), leader().paused ? "▶" : "❚❚");
  at("play").setAttribute("aria-label", leader().paused ? t("Play") : t("Pause"));
}

function begin() {
  for (const film of films) {
    film.controls = false;
    film.addEventListener("click", toggle);
    for (const name of ["timeupdate", "play", "pause", "ended"]) film.addEventListener(name, keepTogether);
  }
  at("seek").max = String(length());
  at("together").hidden = false;
  goTo(0);
}

const KEYS = { " ": toggle, k: toggle, ",": () => step(-1), ".": () => step(1), Home: () => goTo(0), End: () => goTo(length()) };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || at("together").hidden || event.target.closest("select")) return;
  if (event.key === " " && event.target.closest("button, a")) return; // the space bar presses the focused button
  const act = KEYS[event.key];
  if (!act) return;
  if (!event.repeat || event.key === "," || event.key === ".") act(); // a held space bar plays once
  event.preventDefault();
});

for (const [id, act] of [["play", toggle], ["back", () => step(-1)], ["on", () => step(1)]]) at(id).addEventListener("click", act);
at("seek").addEventListener("input", () => {
  for (const film of films) film.pause();
  goTo(Number(at("seek").value));
});
at("rate").addEventListener("change", () => films.forEach((film) => (film.playbackRate = Number(at("rate").value))));
leaveAfterChoice(at("rate"));

const known = (film) => film.readyState >= 1 || new Promise((done) => film.addEventListener("loadedmetadata", done, { once: true }));
if (films.length === 2) Promise.all(films.map(known)).then(begin);
