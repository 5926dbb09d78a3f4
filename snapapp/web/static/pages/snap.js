// The page at /snaps/{id}: a moment's evidence, its record, and its public link.

import { at, client, copied, local, make, markInvalid, pause, put, serverTime } from "/static/parts/page.js";
import { flawOfClock, flawOfFilmed, isNamed, labelOf, momentOf, nameOf, stateOf } from "/static/parts/moment.js";
import { pictureOf } from "/static/parts/qr.js";
import { mayChange, operator, signedIn, signIn } from "/static/parts/signed-in.js";
import { asLocal, clock, exactly, inFull, isolated, number, t, told, when } from "/static/parts/words.js";

const LOOK_EVERY = 1000; // ms between two looks at an unfinished snap

const { ask, change, send } = client();
const id = location.pathname.split("/").pop();
const api = `/v2/snaps/${id}`;

document.title = `${t("Moment")} · snapapp`; // until its name is known
let shown = null;
let tag = ""; // the ETag of the version that is shown
let drawn = ""; // the answer that the page shows

async function show() {
  const answer = await send(api);
  const text = await answer.text();
  if (text === drawn) return shown; // a page that is drawn anew takes the focus from whoever stands on its buttons
  drawn = text;
  const snap = (shown = JSON.parse(text));
  tag = answer.headers.get("ETag");
  const { state, words } = stateOf(snap);
  document.title = `${nameOf(snap)} · snapapp`;
  at("title").replaceChildren(written(nameOf(snap)), `, ${clock(momentOf(snap))}`);
  at("state").dataset.state = state;
  put(at("state"), words);
  at("error").hidden = !snap.error || snap.status === "COMPLETED";
  put(at("error"), told(snap.error ?? ""));
  at("retry").hidden = snap.status !== "FAILED" || !mayChange(snap);
  at("share").hidden = !mayChange(snap);
  at("in-video").href = `/?video=${snap.videoId}&t=${momentOf(snap)}`;
  showEvidence(snap);
  showRecord(snap);
  showFiles(snap);
  at("snap").hidden = false;
  return snap;
}

/** Shows the snap until it is finished, also over a restart of the server. */
async function follow() {
  let { status } = await show();
  while (status === "PENDING") {
    await pause(LOOK_EVERY);
    if (document.hidden) continue;
    try {
      ({ status } = await show());
      put(at("lost"), "");
    } catch (error) {
      if (error.isOurs && error.status < 500) throw error;
      put(at("lost"), t("The server does not answer as it should: {reason}", { reason: told(error.message) }));
    }
  }
}

// --- the evidence -----------------------------------------------------------------------------------------------

function showEvidence(snap) {
  if (snap.snapshotVideo && at("clip").hidden) {
    at("clip").poster = snap.posterPath ? local(snap.posterPath) : "";
    at("clip").src = local(snap.snapshotVideo.path);
    at("clip").hidden = false;
  }
  at("clean-line").hidden = !snap.frames.some((each) => each.cleanPath);
  at("clean").onchange = () => drawFrames(snap);
  drawFrames(snap);
}

function drawFrames({ frames }) {
  at("frames").replaceChildren(...frames.map((frame) => {
    const path = local((at("clean").checked && frame.cleanPath) || frame.path);
    const picture = make("img", { src: path, alt: t("frame {n}", { n: frame.index }), loading: "lazy" });
    const flags = [frame.isBest && t("the sharpest"), frame.isBlurred && t("blurred"), frame.isBlack && t("black"), frame.isFrozen && t("as the one before")];
    const words = [frame.timestampSeconds === null ? "" : `${number(frame.timestampSeconds, 3)} s`, ...flags].filter(Boolean).join(" · ");
    const item = make("li", {}, make("a", { href: path, target: "_blank", rel: "noopener" }, picture), make("span", { className: "quiet", textContent: words }));
    item.classList.toggle("best", Boolean(frame.isBest));
    return item;
  }));
}

// --- the record -------------------------------------------------------------------------------------------------

/** What a person has written: from right to left, where it is Hebrew or Arabic. */
const written = (text) => make("bdi", { textContent: text });

function showRecord(snap) {
  const list = at("record");
  list.replaceChildren();
  const add = (name, value) => value && list.append(make("dt", { textContent: name }), make("dd", {}, value));
  if (isNamed(snap)) add(labelOf("id"), make("a", { href: `/snaps/subject?id=${encodeURIComponent(snap.subject.id)}`, dir: "auto", textContent: snap.subject.id }));
  for (const { key, stringValue, numberValue } of snap.subject.attributes) {
    add(labelOf(key), (stringValue && written(stringValue)) ?? (numberValue === null ? "" : inFull(numberValue)));
  }
  add(t("Marked by"), make("span", {}, written(snap.nickname), `, ${when(snap.createdAt)}`));
  add(t("Filmed"), filmedOf(snap));
  add(t("Moment"), `${clock(momentOf(snap))}, ${number(snap.durationSeconds)} s`);
  const probe = snap.videoProbe;
  if (probe?.compatible) add(t("Video"), [`${probe.width} × ${probe.height}`, probe.codecName, probe.sourceFps && t("{n} frames a second", { n: number(probe.sourceFps) })].filter(Boolean).join(" · "));
}

function filmedOf(snap) {
  const { dataFilmagem } = snap;
  if (!mayChange(snap)) return dataFilmagem && exactly(dataFilmagem);
  const correct = make("button", { type: "button", className: "link-like", textContent: t("Correct") });
  correct.setAttribute("aria-label", t("Correct when it was filmed"));
  correct.addEventListener("click", openFilmed);
  return make("span", {}, dataFilmagem ? `${exactly(dataFilmagem)} ` : "", correct);
}

function showFiles(snap) {
  const files = [snap.snapshotVideo, ...snap.frames].filter((each) => each?.sha256);
  at("files").replaceChildren(...files.map((file) => {
    const link = make("a", { href: local(file.path), textContent: file.fileName, download: `${nameOf(snap)}_${file.fileName}` });
    return make("li", {}, link, make("code", { textContent: file.sha256 }));
  }));
}

// --- when it was filmed, corrected --------------------------------------------------------------------------------

let replaced = ""; // the ETag of what the form corrects: the page may have learned of another correction since
let unchanged = ""; // in the input's own form, which drops seconds that are zero

function openFilmed() {
  replaced = tag;
  at("correct-filmed").hidden = false;
  at("filmed").value = shown.dataFilmagem ? asLocal(new Date(shown.dataFilmagem)) : "";
  unchanged = at("filmed").value;
  at("filmed").max = asLocal(serverTime());
  at("corrected-by").value ||= operator()?.nickname ?? "";
  at("corrected-by").readOnly = signedIn() !== null;
  put(at("filmed-said"), flawOfClock());
  at("filmed").focus();
}

function closeFilmed(words) {
  at("correct-filmed").hidden = true;
  put(at("done"), words);
  at("record").querySelector("button")?.focus();
}

const flawOfCorrection = () => flawOfFilmed(at("filmed")) || (at("corrected-by").value.trim() ? "" : t("Who corrects it is part of the evidence."));

at("correct-filmed").addEventListener("submit", async (event) => {
  event.preventDefault();
  const flaw = flawOfCorrection();
  put(at("filmed-said"), flaw);
  markInvalid(at("filmed"), flaw && at("corrected-by").value.trim());
  if (flaw) return;
  if (at("filmed").value === unchanged) return closeFilmed(t("Nothing was changed."));
  const body = { dataFilmagem: new Date(at("filmed").value).toISOString(), nickname: at("corrected-by").value.trim() };
  try {
    await change(`${api}/subject`, body, { method: "PATCH", headers: { "If-Match": replaced } });
    await Promise.all([show(), showCorrections()]);
    closeFilmed(t("Corrected. What it was before stands below."));
  } catch (error) {
    put(at("filmed-said"), error.status === 412 ? t("Somebody else has corrected it meanwhile. Look again, then save.") : told(error.message));
    if (error.status !== 412) return;
    await Promise.all([show(), showCorrections()]);
    replaced = tag;
  }
});
at("filmed-cancel").addEventListener("click", () => closeFilmed(""));
at("correct-filmed").addEventListener("keydown", (event) => event.key === "Escape" && closeFilmed(""));

// --- what was corrected -------------------------------------------------------------------------------------------

/** The values of a subject in a correction, each in words. */
function saidOf({ id: name, attributes, dataFilmagem }) {
  const values = attributes.map(({ key, stringValue, numberValue }) => `${labelOf(key)} ${isolated(stringValue ?? inFull(numberValue ?? 0))}`);
  return [name === id ? null : isolated(name), ...values, dataFilmagem && `${t("Filmed")} ${exactly(dataFilmagem)}`].filter(Boolean);
}

const changed = (before, after) => `${apart(before, after)} → ${apart(after, before)}`;
/** The values that the one has and the other has not. */
const apart = (one, other) => one.filter((each) => !other.includes(each)).join(", ") || t("nothing");

async function showCorrections() {
  const { items } = await ask(`${api}/corrections`);
  at("history").hidden = !items.length;
  at("corrections").replaceChildren(...items.map(({ by, at: moment, before, after }) =>
    make("li", {}, make("span", { className: "quiet", textContent: `${isolated(by)}, ${when(moment)}` }), make("p", { textContent: changed(saidOf(before), saidOf(after)) })),
  ));
}

at("retry").addEventListener("click", () => change(`${api}/retry`).then(follow).catch((error) => put(at("done"), told(error.message))));

// --- the link ---------------------------------------------------------------------------------------------------

function showShare({ isPublic, publicUrl, expiresAt }) {
  const url = isPublic ? new URL(publicUrl, location.href).href : "";
  at("share-none").hidden = isPublic;
  at("share-link").hidden = at("share-open").hidden = !isPublic;
  at("revoke").hidden = !isPublic || !mayChange(shown);
  put(at("share-url"), url);
  at("share-open").href = isPublic ? local(publicUrl) : "/";
  put(at("share-ends"), !isPublic ? "" : expiresAt ? t("It ends {when}.", { when: when(expiresAt) }) : t("It goes on until somebody ends it."));
  put(at("share-make"), isPublic ? t("Change when it ends") : t("Make a link"));
  at("share-make").classList.toggle("primary", !isPublic);
  const picture = isPublic ? pictureOf(url, t("QR code of the link")) : null;
  at("share-code").hidden = !picture;
  at("share-picture").replaceChildren(...(picture ? [picture] : []));
  shownLink = url;
}

let shownLink = ""; // empty: no link

at("share").addEventListener("submit", async (event) => {
  event.preventDefault();
  const day = at("expires").value;
  const flaw = flawOfEnd(day);
  markInvalid(at("expires"), flaw);
  if (flaw) return put(at("share-said"), flaw);
  const before = shownLink;
  const asking = change(`${api}/share`, { expiresAt: day ? endOf(day).toISOString() : null });
  await shared(asking, () => saidOfLink(before));
});
at("revoke").addEventListener("click", () => shared(change(`${api}/revoke`), () => t("The link is dead, and all that stood below it.")));

const endOf = (day) => new Date(`${day}T23:59:59`);

/** The message about the link. If the shown link had expired meanwhile, the server has made another one. */
function saidOfLink(before) {
  if (!before) return t("The link is there.");
  return before === shownLink ? t("The link ends on another day now.") : t("The link that was shown is over. This is a new one.");
}

function flawOfEnd(day) {
  // years of five digits cannot be parsed
  if (at("expires").validity.badInput || (shownLink && !day) || (day && Number.isNaN(endOf(day).getTime()))) return t("Enter a day.");
  return day && endOf(day) < serverTime() ? t("That day is over.") : "";
}

async function shared(asking, words) {
  try {
    showShare(await asking);
    put(at("share-said"), words());
  } catch (error) {
    put(at("share-said"), error.status === 409 ? t("Describe it first: a link shows what it is.") : told(error.message));
  }
}

at("share-copy").addEventListener("click", async () => {
  put(at("share-said"), (await copied(at("share-url"))) ? t("Copied") : t("Selected"));
});

ask("/v2/session").then((session) => (signIn(session), follow())).then(() => Promise.all([showCorrections(), ask(`${api}/share`).then(showShare)])).catch((error) => {
  if (error.status === 401) location.assign(`/sign-in?${new URLSearchParams({ next: location.pathname })}`);
  put(at("lost"), error.status === 404 ? t("There is no such moment.") : told(error.message));
});
