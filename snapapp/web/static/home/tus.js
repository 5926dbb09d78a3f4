// Sends a file in parts, by the tus protocol: after a broken connection, a reload or a restart of the server it goes on
// from the first missing byte. Not a library, because the needed part of the protocol is short.

import { client, pause } from "/static/parts/page.js";
import { browser } from "/static/parts/remembered.js";
import { t } from "/static/parts/words.js";

const PART = 8 * 2 ** 20; // bytes; parts are small, because a proxy may buffer one and lose it with the connection
const SILENT = 30_000; // ms without a byte, after which the connection counts as dead
const LONGEST = 30_000; // ms between two tries
const PASSING = [0, 408, 409, 423, 429, 500, 502, 503, 504];
const GONE = [404, 410];
const KEPT = "uploads";
const SPOKEN = { "Tus-Resumable": "1.0.0" };

const { ask, change } = client();

// --- what is unfinished, as this browser remembers it -----------------------------------------------------------

const all = () => JSON.parse(browser.get(KEPT) ?? "[]");
const isOf = (file) => ({ name, size, changed }) => name === file.name && size === file.size && changed === file.lastModified;
const isNot = (place) => (each) => each.at !== place;

/** {at, name, size} of each unfinished upload. */
export const unfinished = all;

export function forget(place) {
  const left = all().filter(isNot(place));
  if (left.length) browser.set(KEPT, JSON.stringify(left));
  else browser.forget(KEPT);
}

function keep(file, place) {
  const { name, size, lastModified: changed } = file;
  browser.set(KEPT, JSON.stringify([...all(), { at: place, name, size, changed }]));
}

/** The address of a file's unfinished upload, or null. */
export const placeOf = (file) => all().find(isOf(file))?.at ?? null;

/** The state of an upload: {offset, sizeBytes, videoId}. Fails with status 404 or 410 if the upload is gone. */
export const stateOf = (place) => ask(place);

/** Ends an upload in this browser and on the server. */
export async function end(place) {
  forget(place);
  // if this fails, the upload expires in a day
  await change(place, undefined, { method: "DELETE", headers: SPOKEN }).catch(() => {});
}

// --- sending ----------------------------------------------------------------------------------------------------

/** The file is gone, or has changed since it was chosen: no further byte can be read. */
export class Unreadable extends Error {}

/** Sends a file; returns its video. `progress(bytes)` is called with what was sent so far, `broke(seconds)` with the time
 *  until the next try. An upload that `signal` stops can be resumed later. */
export async function send(file, { progress, broke, signal }) {
  let failures = 0;
  let farthest = 0;
  for (;;) {
    const place = placeOf(file);
    try {
      let { offset, videoId } = place ? await stateOf(place) : { offset: 0 };
      const to = place ?? (await begin(file, signal));
      while (!videoId) {
        progress(offset);
        offset = await part(file, to, offset, progress, signal);
        if (offset > farthest) [farthest, failures] = [offset, 0];
        if (offset === file.size) ({ offset, videoId } = await stateOf(to));
      }
      const video = await ask(`/v2/videos/${videoId}`);
      forget(to);
      return video;
    } catch (error) {
      if (signal.aborted) throw error;
      const status = error.status ?? 0;
      if (!status && !(await isReadable(file))) throw new Unreadable(t("the file was moved or changed, or its card was taken out"));
      if (place && GONE.includes(status)) forget(place);
      else if (!PASSING.includes(status)) throw error; // after 507 and 401 a person must act first
      failures += 1;
      const wait = Math.min(1000 * 2 ** (failures - 1), LONGEST);
      if (wait > 1000) broke(wait / 1000);
      await Promise.race([pause(wait, signal), isOnline(signal)]);
      signal.throwIfAborted();
    }
  }
}

const isReadable = (file) => file.slice(0, 1).arrayBuffer().then(() => true, () => false);
const isOnline = (signal) => new Promise((done) => window.addEventListener("online", done, { once: true, signal }));

async function begin(file, signal) {
  const name = btoa(String.fromCharCode(...new TextEncoder().encode(file.name)));
  const { status, headers } = await request("POST", "/v2/uploads", { "Upload-Length": file.size, "Upload-Metadata": `filename ${name}` }, null, () => {}, signal);
  if (status !== 201) throw new Error("no upload was made");
  const place = new URL(headers("Location"), location.href).pathname;
  keep(file, place);
  return place;
}

async function part(file, place, offset, progress, signal) {
  const said = { "Upload-Offset": offset, "Content-Type": "application/offset+octet-stream" };
  const body = file.slice(offset, offset + PART);
  const { headers } = await request("PATCH", place, said, body, (loaded) => progress(offset + loaded), signal);
  return Number(headers("Upload-Offset"));
}

/** Sends a request with XMLHttpRequest, because fetch does not report the progress of an upload. */
function request(method, path, headers, body, progress, signal) {
  const sent = new XMLHttpRequest();
  let watch;
  const heard = () => {
    clearTimeout(watch);
    watch = setTimeout(() => sent.abort(), SILENT);
  };
  sent.open(method, path);
  for (const [name, value] of Object.entries({ ...SPOKEN, ...headers })) sent.setRequestHeader(name, value);
  sent.upload.addEventListener("progress", ({ loaded }) => (heard(), progress(loaded)));
  const stop = () => sent.abort();
  signal.addEventListener("abort", stop, { once: true });
  return new Promise((done, refuse) => {
    sent.addEventListener("loadend", () => {
      clearTimeout(watch);
      signal.removeEventListener("abort", stop);
      if (sent.status >= 200 && sent.status < 300) return done({ status: sent.status, headers: (name) => sent.getResponseHeader(name) });
      refuse(Object.assign(new Error(reason(sent)), { status: sent.status }));
    });
    heard();
    sent.send(body);
  });
}

function reason(sent) {
  try {
    return JSON.parse(sent.responseText).message;
  } catch {
    return `status ${sent.status}`;
  }
}
