// The page at /: plays a video, marks moments in it, and shows their state.

import { at, client, put } from "/static/parts/page.js";
import { isHalfTyped, showFilmed } from "/static/home/filmed.js";
import * as library from "/static/home/library.js";
import * as marking from "/static/home/marking.js";
import * as moments from "/static/home/moments.js";
import { player, press } from "/static/home/player.js";
import { browser, tab } from "/static/parts/remembered.js";
import * as remote from "/static/home/remote.js";
import { sendWaiting } from "/static/home/sending.js";
import { keepShell } from "/static/home/shell.js";
import { mayChange, signIn, turnOf } from "/static/parts/signed-in.js";
import * as uploads from "/static/home/uploads.js";
import * as waiting from "/static/home/waiting.js";
import { number, t, told } from "/static/parts/words.js";

const { ask, change } = client();
const AGAIN_SOON = 1000; // ms until the second try, after the server did not answer: a restart takes seconds
const AGAIN_AT_LATEST = 15_000; // each pause is twice the last one, up to this
const demo = { id: at("film").dataset.demo, pause: Number(at("film").dataset.pause) };

async function begin() {
  let session;
  try {
    session = await ask("/v2/session");
  } catch (error) {
    at("sign-in").hidden = error.status !== 401;
    at("work").hidden = true;
    if (error.status !== 401) beginAgain(error);
    return;
  }
  const whose = turnOf(session);
  if (openFor && whose !== openFor) return location.assign("/"); // the page shows what somebody else did
  if (whose !== browser.get("tenant")) tab.forget("chosen"); // its names are another tenant's
  signIn(session);
  waiting.begin(whose, sendWaiting); // first, so that it happens even if the rest fails
  at("sign-in").hidden = true;
  at("sign-out").hidden = !session.operator && browser.get("signed-in") === null;
  at("work").hidden = false;
  const isOpen = openFor !== null;
  openFor = whose;
  let known;
  try {
    if (!isOpen) [known] = await Promise.all([library.begin(show), marking.begin(hear, showAgain)]);
  } catch (error) {
    openFor = null;
    return beginAgain(error);
  }
  againAfter = AGAIN_SOON;
  put(at("lost"), "");
  if (isOpen) return;
  uploads.begin(arrive).catch((error) => put(at("upload-said"), told(error.message)));
  const asked = new URLSearchParams(location.search);
  const video = await wanted(asked.get("video"), known);
  if (video && !player.video) await show(video, asked.has("t") ? Number(asked.get("t")) || 0 : undefined);
}

let openFor = null; // whose turn it was when the page was opened; if they sign in again, the page stays as it is

let againAfter = AGAIN_SOON;

function beginAgain(error) {
  lost(error);
  const timer = setTimeout(go, againAfter);
  againAfter = Math.min(2 * againAfter, AGAIN_AT_LATEST);
  addEventListener("online", go, { once: true });

  function go() {
    clearTimeout(timer);
    removeEventListener("online", go);
    begin().catch(lost);
  }
}

function lost({ message }) {
  put(at("lost"), t("The server does not answer as it should: {reason}", { reason: told(message) }));
}

async function wanted(id, known) {
  const found = id && /^[0-9a-f-]{36}$/.test(id) ? await ask(`/v2/videos/${id}`).catch(() => null) : null;
  if (found) return found;
  if (library.lastOpened()) return library.lastOpened();
  if (known.length) return known.find((each) => each.videoId === demo.id) ?? known[0];
  put(at("film-said"), t("There is no video yet: send one. A new installation paints a demo of its own in its first seconds."));
  return library.firstVideo();
}

function arrive(video, isAwaited) {
  library.learn(video, true);
  if (isAwaited || !player.video) void show(video);
}

async function show(video, seconds) {
  const isDemo = video.videoId === demo.id;
  library.choose(video);
  put(at("video-title"), library.nameOfVideo(video));
  history.replaceState(null, "", `/?video=${video.videoId}`);
  const ready = player.show(video, seconds ?? (isDemo ? demo.pause : 0));
  moments.showVideo(video).then(moments.listen, (error) => put(at("mark-said"), told(error.message)));
  showFilmed();
  await ready;
  if (player.video?.videoId !== video.videoId) return;
  library.learn(player.video);
  if (!isHalfTyped()) showFilmed(); // the file may say a time by now
  describeVideo(player.video);
}

function showAgain(videoId, seconds) {
  ask(`/v2/videos/${videoId}`).then((video) => show(video, seconds)).catch((error) => put(at("mark-said"), told(error.message)));
}

function describeVideo(video) {
  const probe = video.videoProbe;
  const facts = probe ? [probe.width && `${probe.width} × ${probe.height}`, probe.codecName, probe.sourceFps && t("{n} frames a second", { n: number(probe.sourceFps) })] : [];
  put(at("video-facts"), facts.filter(Boolean).join(" · "));
  at("video-delete").hidden = probe?.compatible !== false || !mayChange(video);
}

at("video-delete").addEventListener("click", async () => {
  try {
    await library.remove(player.video);
    location.assign("/");
  } catch (error) {
    put(at("mark-said"), told(error.message));
  }
});

/** Shows a new mark; for a mark in the demo's video also links to its job. */
function hear(marked) {
  moments.hear(marked);
  const job = marked.snap?.job?.jobId;
  at("happened").hidden = !job || marked.video.videoId !== demo.id;
  at("happened-job").href = `/ops/jobs/${job}`;
  put(at("happened-psql"), `SELECT status, progress, result FROM snap_processing_job WHERE id = ${job} \\gx`);
}

// --- keys -------------------------------------------------------------------------------------------------------

const isTyping = (element) => element.closest("input:not([type=range], [type=checkbox]), textarea, select, [contenteditable]");
const isOfSpeeds = (target, key) => target === at("rate") && /^[a-z]$/i.test(key); // its choices are numbers: no letter finds one
const isPressed = (element) => element.closest("button, a, summary, label");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || (isTyping(event.target) && !isOfSpeeds(event.target, event.key)) || document.querySelector("dialog[open]")) return;
  if (event.key === " " && isPressed(event.target)) return; // the space bar presses the focused button
  const key = event.key.toLowerCase();
  const act = { s: () => event.repeat || marking.mark(), d: () => marking.toForm() || moments.describeNewest(), "?": () => (at("keys").open = !at("keys").open) }[key];
  if (act) act();
  else if (!press(event)) return;
  event.preventDefault();
});

at("mark").addEventListener("click", ({ detail }) => marking.mark({ isSecond: detail > 1 }));
// A click on the player's buttons does not focus them, so that the space bar still plays and stops.
for (const part of [at("controls"), at("mark")]) {
  part.addEventListener("mousedown", (event) => event.target.closest("button") && event.preventDefault());
}

at("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await change("/v2/session", { token: at("sign-in-token").value.trim() });
    at("sign-in-token").value = "";
    browser.set("signed-in", "yes"); // because scripts cannot see the cookie
    await begin();
    if (!at("sign-in").hidden) put(at("sign-in-said"), t("The token is right, but this browser keeps no cookies. Allow them for this address, and sign in again."));
  } catch (error) {
    put(at("sign-in-said"), told(error.message));
  }
});

addEventListener("signed-out", () => (at("sign-in").hidden = false));
// somebody may have signed in in another window meanwhile
addEventListener("focus", () => at("sign-in").hidden || begin().catch(lost));

/** Signs out. The operator's name is forgotten too, because the next person at this screen may be another. */
at("sign-out").addEventListener("click", async () => {
  if (waiting.isAnyWaiting()) return put(at("lost"), t("Moments wait for the line: they would be lost. Stay until they are sent, or forget them."));
  try {
    await change("/v2/session", undefined, { method: "DELETE" });
  } catch (error) {
    if (error.status !== 401) return lost(error); // the cookie is still here: the next person would mark in this name
  }
  for (const name of ["signed-in", "operator", "uploads", "opened", "tenant"]) browser.forget(name);
  tab.forget("chosen");
  location.assign("/");
});

remote.begin(arrive);
keepShell();
begin().catch(lost);
