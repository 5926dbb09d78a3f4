// Marks moments at once, as drafts, and describes them afterwards. Typed text must not go to the wrong moment: each
// moment has its own form, which begins empty, and a name is saved without asking only if the player still shows that
// moment.

import { at, client, isAgreed, leaveAfterChoice, local, make, markInvalid, put } from "/static/parts/page.js";
import { filmedAt, flawOfTyped } from "/static/home/filmed.js";
import { isNamed, labelOf } from "/static/parts/moment.js";
import { operatorOrAsk, showOperator } from "/static/home/operator.js";
import { player } from "/static/home/player.js";
import { browser } from "/static/parts/remembered.js";
import { hear, onMarks, submit, tell } from "/static/home/sending.js";
import { operator } from "/static/parts/signed-in.js";
import { clock, inFull, isOfThousands, t, told, when } from "/static/parts/words.js";

const RECENT = 8; // names of subjects that are offered
const FRAMES = 1; // seconds of frames, if no interval is set
const CLIP = 2; // seconds of clip, if no interval is set

const { ask, send } = client();

let templates = [];
let showVideo = () => {};
let target = null; // the moment that the form describes
let asked = 0; // counts the forms that were asked for, so that an answer about an earlier one opens nothing
const recent = []; // names, the newest first
const choices = at("recent"); // the element with the recent names; it is moved into the form

/** `listener(target)` is called when a moment is marked, and again whenever something about it changes;
 *  `show(videoId, seconds)` shows another video. */
export async function begin(listener, show) {
  onMarks(listener);
  showVideo = show;
  templates = (await ask("/v2/templates")).items.filter((each) => each.isActive);
  at("template").replaceChildren(...templates.map((each) => make("option", { value: String(each.id), textContent: told(each.name) })));
  const kept = browser.get("template");
  if (templates.some((each) => String(each.id) === kept)) at("template").value = kept;
  at("template-line").hidden = templates.length < 2;
  showOperator();
}

at("template").addEventListener("change", () => browser.set("template", at("template").value));
leaveAfterChoice(at("template"));

export function learnName(name) {
  if (recent.includes(name)) recent.splice(recent.indexOf(name), 1);
  recent.unshift(name);
  recent.splice(RECENT);
  showRecent();
}

// --- marking ----------------------------------------------------------------------------------------------------

/** Marks the moment that the player shows. With a double click's second press (`isSecond`) only if it is another one: the
 *  same moment would be marked twice, or the end of an interval after it. */
export async function mark({ isSecond = false } = {}) {
  if (!player.canMark || document.querySelector("dialog[open]")) return;
  const moment = captured();
  const reason = flawOfTyped();
  if (reason || !filmedAt(moment.video, 0)) {
    markInvalid(at("filmed"), true);
    at("filmed").focus();
    return tell(reason ? t("The moment at {at} was not marked: {reason}", { at: clock(moment.seconds), reason }) : t("Nothing was marked. When was this filmed? The file does not say."));
  }
  if (isSecond && last?.video === moment.video && last.shownAt === moment.shownAt) return;
  last = moment;
  const who = await operatorOrAsk();
  if (!who) {
    last = null;
    return tell(t("Nothing was marked: who marks is part of the evidence."));
  }
  const marked = { ...moment, typed: new Map(), snap: null, etag: null, error: null, sent: null, removed: false };
  marked.wanted = wanted(marked, who);
  player.forgetInterval();
  const sent = submit(marked); // first, because `submit` keeps the mark even if the rest fails
  hear(marked);
  describe(marked);
  at("describe").scrollIntoView({ block: "nearest" });
  tell(t("Marked at {at}. D describes it.", { at: clock(marked.seconds) }));
  await sent;
}

let last = null; // the moment that was marked last

/** A copy of what the player shows now. */
function captured() {
  const { from, to } = player.interval;
  const template = Number(at("template").value) || null;
  return {
    key: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, // browsers have no randomUUID without https
    keptAt: Date.now(),
    video: player.video,
    shownAt: player.moment,
    seconds: to === null ? player.moment : from,
    length: to === null ? null : Math.round((to - from) * 1000) / 1000,
    templateId: template,
    picture: player.picture(),
  };
}

function wanted({ video, seconds, length, templateId }, { nickname, email }) {
  return {
    videoId: video.videoId,
    nickname,
    email,
    dataFilmagem: filmedAt(video, seconds),
    startSeconds: seconds,
    durationSeconds: length ?? FRAMES,
    snapshotDurationSeconds: length ?? CLIP,
    subjectTemplateId: templateId,
    isDraft: true,
  };
}

player.onChange(() => {
  at("mark").disabled = !player.canMark;
  put(at("mark-at"), clock(player.interval.to === null ? player.moment : player.interval.from));
});

// --- describing: a form of the template's fields -----------------------------------------------------------------

const templateOf = (moment) => templates.find((each) => each.id === (moment.snap?.subjectTemplateId ?? moment.templateId));

/** The fields of a moment's template, with the one that names the subject marked: `id`, or else the first required text,
 *  such as an ear tag. Where the moment has another ear tag than name, the name has a field of its own. */
function fieldsOf(moment) {
  const fields = [...(templateOf(moment)?.fields ?? [])].sort((one, other) => one.order - other.order);
  const tag = fields.find((each) => each.required && each.type === "string");
  const name = fields.find((each) => each.key === "id") ?? (tag && !isNamedOtherwise(moment, tag.key) ? tag : undefined);
  if (!name) fields.unshift({ key: "id", type: "string", required: false });
  return fields.map((each) => ({ ...each, isName: name ? each === name : each.key === "id" }));
}

/** Whether a moment has a name and, in this attribute, another text: clients of the API may send both. */
function isNamedOtherwise({ snap }, key) {
  const text = snap?.subject.attributes.find((each) => each.key === key)?.stringValue;
  return Boolean(text) && isNamed(snap) && text !== snap.subject.id;
}

/** Opens the form for an existing snap, to describe or correct it. */
export async function describeSnap(snap) {
  const mine = ++asked;
  const moment = { video: player.video, seconds: snap.resolvedStartSeconds ?? snap.startSeconds, picture: null, typed: new Map(), removed: false };
  const answer = await send(`/v2/snaps/${snap.snapId}`);
  moment.etag = answer.headers.get("ETag");
  moment.snap = await answer.json();
  if (mine !== asked) return; // somebody types into another form by now
  moment.sent = Promise.resolve(moment.snap);
  for (const { key, stringValue, numberValue } of moment.snap.subject.attributes) moment.typed.set(key, stringValue ?? (numberValue === null ? "" : inFull(numberValue)));
  const name = fieldsOf(moment).find((each) => each.isName);
  if (isNamed(moment.snap)) moment.typed.set(name.key, moment.snap.subject.id);
  moment.known = new Map(moment.typed);
  describe(moment);
  hear(moment);
  focusForm();
}

// The form that was asked for must not open, on a slow line, under the hands of somebody who types elsewhere by now: the
// rest of a name would be filed at its moment. Nobody types into the timeline or a list.
document.addEventListener("input", ({ target: input }) => input.matches("select, [type=range]") || (asked += 1), { capture: true });

/** Opens the form for a moment. Text that was typed for the previous moment is kept with that moment. */
export function describe(moment) {
  keepTyped();
  asked += 1;
  const before = target;
  target = moment;
  if (before) hear(before);
  at("describe").hidden = false;
  put(at("describe-title"), t("What is at {at}?", { at: clock(moment.seconds) }));
  at("describe-picture").replaceChildren(pictureOf(moment));
  put(at("describe-facts"), factsOf(moment));
  put(at("describe-said"), "");
  at("fields").replaceChildren(...fieldsOf(moment).map((field) => line(moment, field)));
  showRecent();
}

/** Shows who marks, and when the moment was filmed. */
function factsOf({ snap, wanted }) {
  const { nickname, dataFilmagem } = snap ?? wanted;
  return t("{who} · filmed {when}", { who: nickname, when: dataFilmagem ? when(dataFilmagem) : "?" });
}

function pictureOf({ picture, snap }) {
  if (picture) return picture;
  const path = snap?.thumbnailPath ?? snap?.posterPath;
  return path ? make("img", { src: local(path), alt: "" }) : make("span", { className: "quiet", textContent: t("no picture yet") });
}

function line(moment, field) {
  const id = `field-${field.key}`;
  const input = make("input", { id, type: "text", dir: "auto", autocomplete: "off", spellcheck: false, maxLength: field.isName ? 200 : 1000, inputMode: field.type === "number" ? "decimal" : "text" });
  input.value = moment.typed.get(field.key) ?? field.default ?? "";
  input.dataset.key = field.key;
  input.dataset.type = field.type;
  input.dataset.name = String(field.isName);
  input.required = field.required;
  input.setAttribute("aria-describedby", `${id}-said`);
  const said = make("span", { id: `${id}-said`, className: "wrong" });
  input.addEventListener("input", () => {
    if (field.isName) noteDoubt(moment, input.value);
    keepTyped();
    judge(input);
    hear(moment);
  });
  const label = make("label", { htmlFor: id, textContent: labelOf(field.key) }, field.required ? make("span", { className: "must", textContent: " *", title: t("must be there") }) : null);
  return make("div", { className: field.isName ? "field name" : "field" }, label, input, said);
}

/** Notes whether a name was typed while the player showed another moment: it may be that moment's name. */
function noteDoubt(moment, name) {
  if (!isOnScreen(moment)) moment.isDoubtful = true;
  else if (name.length < 2) moment.isDoubtful = false; // the name was begun again at the right moment
}

const isOnScreen = (moment) => player.video?.videoId === moment.video?.videoId && player.isAt(moment.seconds);

const inputs = () => [...at("fields").querySelectorAll("input")];

function keepTyped() {
  if (target) for (const input of inputs()) if (input.value || target.typed.has(input.dataset.key)) target.typed.set(input.dataset.key, input.value);
}

/** Checks an input while it is typed. A missing required field is only reported when saving. */
function judge(input, isSaving = false) {
  const text = input.value.trim();
  const isNumber = input.dataset.type === "number";
  if (text && isNumber && numberOf(text) === null) return complain(input, t("must be a number, such as 412.5"));
  if (isNumber && isOfThousands(text)) return complain(input, t("can mean {one} or {other}: write one of these", { one: text.replace(/[.,]/, ""), other: inFull(numberOf(text)) }));
  if (!text && isSaving && input.required) return complain(input, t("is required"));
  complain(input, "");
}

function complain(input, words) {
  put(at(`${input.id}-said`), words);
  markInvalid(input, words);
}

/** The number in a text, with a decimal comma or point; null if it is none. */
function numberOf(text) {
  const found = text.replace(",", ".");
  return /^-?\d{1,14}(\.\d{1,18})?$/.test(found) ? Number(found) : null;
}

function showRecent() {
  const name = inputs().find((each) => each.dataset.name === "true");
  const buttons = recent.map((each) => {
    const button = make("button", { type: "button", className: "chip", dir: "auto", textContent: each });
    button.addEventListener("click", () => {
      name.value = each;
      name.dispatchEvent(new Event("input"));
      name.focus();
    });
    return button;
  });
  name?.parentElement.append(choices);
  choices.replaceChildren(...(recent.length && name ? [make("span", { className: "quiet", textContent: t("Recent:") }), ...buttons] : []));
}

/** Moves the player to the form's moment, which another video may show by now, and focuses the form. False if no form is open. */
export function toForm() {
  if (!target) return false;
  const { videoId } = target.video;
  if (player.video?.videoId === videoId) player.goTo(target.seconds);
  else showVideo(videoId, target.seconds);
  focusForm();
  return true;
}

function focusForm() {
  player.pause();
  inputs()[0]?.focus();
}

at("describe").addEventListener("submit", (event) => {
  event.preventDefault();
  void save();
});
at("describe-later").addEventListener("click", leave);
at("describe").addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing) return; // while an accent is composed, the key takes it back
  event.stopPropagation();
  leave();
});

/** Closes the form, and keeps the typed text with its moment. */
function leave() {
  keepTyped();
  close();
}

function close() {
  const left = target;
  target = null;
  at("describe").hidden = true;
  at("fields").replaceChildren();
  if (left) hear(left);
}

/** Closes the form, and gives the keys back to the player, unless somebody types elsewhere by now. */
function closeSaved() {
  const isElsewhere = document.activeElement !== document.body && !at("describe").contains(document.activeElement);
  close();
  if (isElsewhere) return;
  at("mark").focus({ preventScroll: true });
  at("mark").blur();
}

async function save() {
  const moment = target;
  if (!moment || at("save").disabled) return;
  keepTyped();
  put(at("describe-said"), "");
  for (const input of inputs()) judge(input, true);
  const wrong = inputs().find((each) => each.getAttribute("aria-invalid"));
  if (wrong) return wrong.focus();
  if (!(await operatorOrAsk()) || target !== moment) return;
  const { name, body } = requestOf(moment);
  if (!name && !body.attributes.length) return put(at("describe-said"), t("Nothing is typed yet."));
  if (!(await isSure(moment, name))) return;
  at("save").disabled = true;
  const stored = new Map(moment.typed);
  try {
    await store(moment, body);
    moment.known = stored;
    const isWhole = [...moment.typed].every(([key, value]) => value === (stored.get(key) ?? "")); // nothing was typed since
    if (isWhole) moment.typed.clear();
    if (name) learnName(name);
    tell(t("Saved: {name} at {at}.", { name: name || t("unnamed"), at: clock(moment.seconds) }));
    if (isWhole && target === moment) closeSaved();
  } catch (error) {
    if (target === moment) void explain(moment, error);
    else tell(told(error.message));
  } finally {
    at("save").disabled = false;
    hear(moment);
  }
}

function requestOf(moment) {
  const attributes = inputs()
    .filter((each) => each.dataset.key !== "id" && each.value.trim())
    .map(({ dataset: { key, type }, value }) =>
      type === "number" ? { key, type, numberValue: numberOf(value.trim()) } : { key, type, stringValue: value.trim() },
    );
  const asked = new Set(inputs().map((each) => each.dataset.key));
  const others = (moment.snap?.subject.attributes ?? []).filter((each) => !asked.has(each.key));
  const name = inputs().find((each) => each.dataset.name === "true")?.value.trim() ?? "";
  return { name, body: { id: name || null, attributes: [...attributes, ...others], nickname: operator().nickname } };
}

/** If the player has moved on since, asks whether the name belongs to the moment's picture. If not, the name is
 *  dropped. */
async function isSure(moment, name) {
  if (isOnScreen(moment) && !moment.isDoubtful) return true;
  put(at("sure-title"), t("Is this {name}?", { name: name || t("what you typed") }));
  put(at("sure-words"), t("It was typed while the player showed another moment. It will stand at {at}, which looked like this.", { at: clock(moment.seconds) }));
  at("sure-picture").replaceChildren(copied(pictureOf(moment)));
  if (await isAgreed(at("sure"))) return target === moment;
  toForm();
  forgetName(moment);
  return false;
}

function forgetName(moment) {
  const input = inputs().find((each) => each.dataset.name === "true");
  if (target !== moment || !input) return;
  input.value = "";
  moment.typed.set(input.dataset.key, "");
  moment.isDoubtful = false;
  hear(moment);
}

function copied(picture) {
  const copy = picture.cloneNode(true);
  if (picture instanceof HTMLCanvasElement) copy.getContext("2d").drawImage(picture, 0, 0);
  return copy;
}

async function store(moment, body) {
  const snap = moment.snap ?? (await moment.sent) ?? (await submit(moment));
  if (!snap) throw new Error(moment.error);
  const headers = { "Content-Type": "application/json", "If-Match": moment.etag };
  const answer = await send(`/v2/snaps/${snap.snapId}/subject`, { method: "PATCH", body: JSON.stringify(body), headers });
  moment.etag = answer.headers.get("ETag");
  moment.snap = await answer.json();
}

const DELETED = t("Not saved: somebody else has deleted this moment. What you typed stays here to be copied.");

/** Shows the server's complaints at the fields they are about. */
async function explain(moment, error) {
  const left = [];
  for (const detail of error.details ?? []) {
    const input = inputOf(detail.slice(0, detail.indexOf(":")));
    if (input) complain(input, t(detail.slice(detail.indexOf(":") + 1).trim()));
    else left.push(detail);
  }
  inputs().find((each) => each.getAttribute("aria-invalid"))?.focus();
  const ours = {
    401: t("Not saved: sign in again, at the top of this page, and save once more."),
    404: DELETED,
  };
  const words = ours[error.status] ?? told(error.message);
  put(at("describe-said"), left.length || !error.details?.length ? words : "");
  if (error.status === 412) await showOthers(moment);
}

function inputOf(place) {
  const [, key] = /^subject\.attributes\.([^.[]+)$/.exec(place) ?? [];
  const [, index] = /attributes[.[](\d+)/.exec(place) ?? [];
  const sent = inputs().filter((each) => each.dataset.key !== "id" && each.value.trim());
  if (index !== undefined) return sent[Number(index)];
  return inputs().find((each) => (key ? each.dataset.key === key : each.dataset.name === "true" && /(^|\.)id$/.test(place)));
}

/** Learns what somebody else has said of the moment. Another one's form may be open when the answer comes. */
async function showOthers(moment) {
  const answer = await send(`/v2/snaps/${moment.snap.snapId}`);
  moment.etag = answer.headers.get("ETag");
  moment.snap = await answer.json();
  if (target === moment) put(at("describe-said"), t("Somebody else has described it meanwhile, as {name}. To replace that, save again.", { name: moment.snap.subject.id }));
}

/** Shows the picture that has been made since the form of a snap was opened. */
export function learnPicture({ snapId, thumbnailPath, posterPath }) {
  const isMissing = target?.snap?.snapId === snapId && !at("describe-picture").querySelector("canvas, img");
  if (!isMissing || !(thumbnailPath ?? posterPath)) return;
  Object.assign(target.snap, { thumbnailPath, posterPath });
  at("describe-picture").replaceChildren(pictureOf(target));
}

/** Whether the form describes this moment. */
export const isShown = (moment) => target === moment;

/** The text that was typed for a moment and is not saved. */
export const unsaved = (moment) => [...moment.typed].filter(([key, value]) => value && value !== moment.known?.get(key)).map(([, value]) => value).join(", ");

/** Closes the form of a moment that somebody has deleted elsewhere, unless what is typed there would be lost. */
export function loseTarget(snapId) {
  if (target?.snap?.snapId !== snapId) return;
  keepTyped();
  target.removed = true;
  if (unsaved(target)) put(at("describe-said"), DELETED);
  else close();
}

export function forgetTarget(snapId) {
  if (target?.snap?.snapId !== snapId) return;
  target.typed.clear();
  close();
}
