// Uploads files one after the other. Each has a progress bar, and can be paused, resumed and cancelled.

import { arrange, at, make, put } from "/static/parts/page.js";
import * as tus from "/static/home/tus.js";
import { number, size, t, told } from "/static/parts/words.js";

const before = tus.unfinished(); // uploads that were unfinished when the page was loaded; later ones have a line
const early = []; // videos that were uploaded before `begin` was called
let arrived = (video) => early.push(video);
const lines = []; // one for each file, the oldest first
let sending = null;
let isAwaited = true; // whether nothing but uploads was used since a file was chosen

/** `listener(video, isAwaited)` is called for each uploaded video. An upload takes minutes: if the user has turned to
 *  something else meanwhile, or another file follows, `isAwaited` is false, and the player may not be taken. */
export async function begin(listener) {
  arrived = listener;
  early.forEach((video, place) => arrived(video, isAwaited && place === early.length - 1));
  for (const { at: place, name, size: bytes } of before) {
    if (lines.some(({ file }) => file && tus.placeOf(file) === place)) continue;
    try {
      const { offset, videoId } = await tus.stateOf(place);
      if (videoId) tus.forget(place);
      else showLeft(place, name, bytes, offset);
    } catch (error) {
      // other errors: another window sends it, or the connection is down
      if ([404, 410].includes(error.status)) tus.forget(place);
    }
  }
}

/** Shows an upload from before the page was loaded. The file must be chosen again, because a page cannot open it
 *  otherwise. */
function showLeft(place, name, bytes, offset) {
  const line = shown(name, bytes);
  line.left = place;
  showProgress(line, offset);
  put(line.said, t("{n} % are here. Choose the file again, and the rest follows.", { n: percent(offset, bytes) }));
  act(line, [t("Choose"), () => at("upload-file").click()], [t("Forget it"), () => (tus.end(place), remove(line))]);
}

const percent = (done, all) => number(Math.floor((1000 * done) / all) / 10, 1);

function shown(name, bytes) {
  const line = {
    name,
    bytes,
    file: null,
    left: null,
    stop: null, // an AbortController while it is sent
    state: "waits", // or "sent", "halted", "over"
    bar: make("progress", { max: bytes, value: 0 }),
    said: make("span", { className: "quiet" }),
    buttons: make("span", { className: "line" }),
  };
  line.bar.setAttribute("aria-label", name);
  line.item = make("li", {}, make("b", { dir: "auto", textContent: name }), line.bar, line.said, line.buttons);
  lines.push(line);
  at("uploads").append(line.item);
  return line;
}

function act(line, ...buttons) {
  arrange(
    line.buttons,
    buttons.map(([words, press]) => {
      const button = make("button", { type: "button", className: "link-like", textContent: words });
      button.addEventListener("click", press);
      return button;
    }),
  );
}

function remove(line) {
  lines.splice(lines.indexOf(line), 1);
  arrange(at("uploads"), lines.map(({ item }) => item), at("upload-file"));
}

function showProgress(line, bytes) {
  line.bar.value = bytes;
  put(line.said, t("{done} of {all}", { done: size(bytes), all: size(line.bytes) }));
}

// --- buttons ----------------------------------------------------------------------------------------------------

at("upload-file").addEventListener("change", () => {
  for (const file of at("upload-file").files) add(file);
  at("upload-file").value = "";
});

for (const name of ["dragover", "drop"]) {
  document.addEventListener(name, (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    if (name === "drop") for (const file of event.dataTransfer.files) add(file);
  });
}

for (const name of ["keydown", "pointerdown"]) {
  document.addEventListener(name, ({ target }) => (isAwaited &&= target.closest(".upload, #uploads") !== null), { capture: true });
}

function add(file) {
  isAwaited = true;
  const place = tus.placeOf(file);
  const left = place && lines.find((each) => each.left === place);
  if (left) remove(left);
  const line = shown(file.name, file.size);
  line.file = file;
  wait(line);
}

function wait(line) {
  line.state = "waits";
  put(line.said, t("waits"));
  act(line, [t("Cancel"), () => cancel(line)]);
  void sendAll();
}

function halt(line) {
  line.state = "halted";
  line.stop?.abort();
  act(line, [t("Go on"), () => wait(line)], [t("Cancel"), () => cancel(line)]);
}

function cancel(line) {
  line.state = "over";
  line.stop?.abort();
  const place = tus.placeOf(line.file);
  if (place) void tus.end(place);
  ended(line, t("cancelled"));
}

function ended(line, words) {
  line.state = "over";
  line.bar.hidden = true;
  put(line.said, words);
  act(line, [t("Forget it"), () => remove(line)]);
}

// --- one after the other ----------------------------------------------------------------------------------------

async function sendAll() {
  if (sending) return;
  for (let line = next(); line; line = next()) {
    sending = line;
    await sendOne(line);
  }
  sending = null;
}

const next = () => lines.find((each) => each.state === "waits" && each.file);

async function sendOne(line) {
  line.state = "sent";
  line.stop = new AbortController();
  act(line, [t("Pause"), () => halt(line)], [t("Cancel"), () => cancel(line)]);
  const hear = {
    progress: (bytes) => showProgress(line, bytes),
    broke: (seconds) => put(line.said, t("The line broke. It goes on in {n} s.", { n: seconds })),
    signal: line.stop.signal,
  };
  try {
    const video = await tus.send(line.file, hear);
    remove(line);
    put(at("upload-said"), t("{name} is here.", { name: line.name }));
    arrived(video, isAwaited && !next());
  } catch (error) {
    if (line.state === "halted") put(line.said, t("halted at {done} of {all}", { done: size(line.bar.value), all: size(line.bytes) }));
    else if (line.state === "sent") refused(line, error);
  }
}

/** Shows a refusal. After 401 and 507, or when the file can be read again, the rest can be sent later, because the
 *  server keeps the received bytes for a day. */
function refused(line, error) {
  const place = tus.placeOf(line.file);
  const mayPass = place && (error instanceof tus.Unreadable || [401, 507].includes(error.status));
  if (place && !mayPass) tus.forget(place);
  ended(line, t("not taken: {reason}", { reason: told(error.message) }));
  if (mayPass) act(line, [t("Go on"), () => ((line.bar.hidden = false), wait(line))], [t("Cancel"), () => cancel(line)]);
}
