// What all pages share: making elements of text, which stays text, and asking the server.

export const at = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** An attribute without a value would say that nothing is wrong. */
export function markInvalid(element, isWrong) {
  if (isWrong) element.setAttribute("aria-invalid", "true");
  else element.removeAttribute("aria-invalid");
}

/** Links may begin with a public address; a page asks the server that it came from. */
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
    this.isOurs = message !== undefined; // and not a proxy's
    this.details = details;
  }
}

/** How the server is asked by a page that sends these headers with each request. */
export function client(headers = () => ({})) {
  async function send(path, options = {}) {
    const answer = await fetch(path, { ...options, headers: { ...options.headers, ...headers() }, cache: "no-store" });
    if (answer.ok) return answer;
    throw new Refused(answer.status, await answer.json().catch(() => ({})));
  }

  const ask = async (path) => (await send(path, { signal: AbortSignal.timeout(10_000) })).json();

  async function change(path, body, { method = "POST", within = 10_000, headers = {} } = {}) {
    const json = body && { body: JSON.stringify(body), headers: { ...headers, "Content-Type": "application/json" } };
    const answer = await send(path, { method, headers, signal: AbortSignal.timeout(within), ...json });
    return answer.status === 204 ? null : answer.json();
  }

  return { send, ask, change };
}
