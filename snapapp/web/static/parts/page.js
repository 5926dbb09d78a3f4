// What all pages share: making elements, whose texts are never parsed as HTML, and sending requests.

const WITHIN = 10_000; // ms for an answer, if the request sets no other limit

export const at = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  return element;
}

export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes these the children, in this order. Those that stay are not moved, so that they keep the focus. Where the one
 *  with the keyboard's focus goes, what takes its place gets it, or `otherwise` if none is left. */
export function arrange(parent, children, otherwise = null) {
  const focused = parent.querySelector(":focus-visible");
  const at = [...parent.children].findIndex((each) => each.contains(focused));
  const kept = new Set(children);
  for (const old of [...parent.children]) if (!kept.has(old)) old.remove();
  children.forEach((child, place) => parent.children[place] !== child && parent.insertBefore(child, parent.children[place] ?? null));
  if (!focused || focused.isConnected) return;
  const next = parent.children[Math.min(at, children.length - 1)];
  (next?.matches("button, a") ? next : (next?.querySelector("button, a") ?? otherwise))?.focus({ preventScroll: true });
}

/** Copies an element's text. Where the page may not (without https), the text is selected, and false returned. */
export async function copied(element, text = element.textContent) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return false;
  }
}

/** Sets or removes aria-invalid. It is removed, because the attribute with an empty value would mean "valid". */
export function markInvalid(element, isWrong) {
  if (isWrong) element.setAttribute("aria-invalid", "true");
  else element.removeAttribute("aria-invalid");
}

/** Gives the keys back to the page when something is chosen in a list with the mouse. With the keyboard one stays there. */
export function leaveAfterChoice(list) {
  let isPointed = false;
  list.addEventListener("pointerdown", () => (isPointed = true));
  list.addEventListener("keydown", () => (isPointed = false));
  list.addEventListener("change", () => isPointed && list.blur());
}

/** Asks in a dialog that has a button for no, which has the focus, and after it one for yes. */
export async function isAgreed(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  dialog.querySelector("button").focus();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  return dialog.returnValue === "yes";
}

/** A link without its host: links may have the public address, but a page asks the server that it came from. */
export function local(path) {
  const url = new URL(path, location.href);
  return url.pathname + url.search;
}

export function pause(milliseconds, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}

/** An answer that is not 2xx. `details` are lines of `field: reason`. */
export class Refused extends Error {
  constructor(status, { message, details = [] } = {}) {
    super([message ?? `status ${status}`, details.join("; ")].filter(Boolean).join(": "));
    this.status = status;
    this.isOurs = message !== undefined; // otherwise a proxy answered
    this.details = details;
  }
}

let ahead = 0; // ms that the server's clock is ahead of this computer's, by the last answer

/** The time by the server's clock: this computer's may be days off. */
export const serverTime = () => new Date(Date.now() + ahead);

function learnTime(answer) {
  const said = Date.parse(answer.headers.get("Date"));
  if (said) ahead = said - Date.now();
}

/** The functions that send requests, each with the given headers. */
export function client(headers = () => ({})) {
  // a line may be dead without saying so: without a limit whoever waits for the answer would wait for ever
  async function send(path, options = {}) {
    const answer = await fetch(path, { signal: AbortSignal.timeout(WITHIN), ...options, headers: { ...options.headers, ...headers() }, cache: "no-store" });
    learnTime(answer);
    if (answer.ok) return answer;
    if (answer.status === 401) dispatchEvent(new Event("signed-out")); // whatever was asked: one page lets sign in beside it
    throw new Refused(answer.status, await answer.json().catch(() => ({})));
  }

  const ask = async (path) => (await send(path)).json();

  async function change(path, body, { method = "POST", within = WITHIN, headers = {} } = {}) {
    const json = body && { body: JSON.stringify(body), headers: { ...headers, "Content-Type": "application/json" } };
    const answer = await send(path, { method, headers, signal: AbortSignal.timeout(within), ...json });
    return answer.status === 204 ? null : answer.json();
  }

  return { send, ask, change };
}
