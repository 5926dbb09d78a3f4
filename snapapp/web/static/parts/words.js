// The pages in English and Portuguese. A text is looked up by its English words; without a translation it stays
// English.

import { OF_THE_SERVER, PORTUGUESE } from "/static/parts/portuguese.js";
import { browser } from "/static/parts/remembered.js";

const KEPT = "language";

const kept = browser.get(KEPT);
if (kept) tellServer(kept);
/** The language: the server's choice on pages that the server makes; otherwise the stored one, that of the address, or
 *  the browser's. */
export const language = document.documentElement.dataset.said ?? kept ?? new URLSearchParams(location.search).get("lang") ?? (preferred().startsWith("pt") ? "pt" : "en");
const locale = language === "pt" ? "pt-BR" : "en";

/** Sets the cookie by which pages that the server makes have the same language. */
function tellServer(chosen) {
  document.cookie = `${KEPT}=${chosen}; path=/; max-age=31536000; samesite=lax`;
}

function preferred() {
  return navigator.languages.find((each) => /^(pt|en)\b/i.test(each))?.toLowerCase() ?? "en";
}

/** The text in the page's language, with values in place of {names}. */
export function t(text, values = {}) {
  const found = language === "pt" ? (PORTUGUESE[text] ?? text) : text;
  return found.replace(/\{(\w+)\}/g, (whole, name) => isolated(values[name] ?? whole));
}

const FROM_THE_RIGHT = /[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc]/;

/** A person's text to stand among ours: one that is written from right to left would reorder the words around it. */
export const isolated = (text) => (FROM_THE_RIGHT.test(text) ? `\u2068${text}\u2069` : text);

/** A message of the server in the page's language, or unchanged if there is no translation. */
export function told(text) {
  const [pattern, words] = (language === "pt" && OF_THE_SERVER.find(([each]) => each.test(text))) || [];
  return pattern ? text.replace(pattern, words) : text;
}

/** Translates the HTML: texts of elements with data-t, and the attributes that data-t-of names. */
function translate() {
  document.documentElement.lang = locale;
  for (const element of document.querySelectorAll("[data-t]")) {
    element.textContent = t(element.textContent.trim().replace(/\s+/g, " "));
  }
  for (const element of document.querySelectorAll("[data-t-of]")) {
    for (const name of element.dataset.tOf.split(" ")) element.setAttribute(name, t(element.getAttribute(name)));
  }
  for (const button of document.querySelectorAll("[data-language]")) {
    const isLink = button.localName === "a"; // a link leads to the same page in that language
    if (!isLink) button.setAttribute("aria-pressed", String(button.dataset.language === language));
    button.addEventListener("click", () => {
      const isKept = browser.keep(KEPT, button.dataset.language);
      tellServer(button.dataset.language);
      if (isLink) return;
      if (isKept) location.reload();
      else location.search = new URLSearchParams([...others(location.search), ["lang", button.dataset.language]]);
    });
  }
}

const others = (query) => [...new URLSearchParams(query)].filter(([name]) => name !== "lang");

/** A number that a person gave, as it is typed: with all its digits, and nothing between thousands. */
export const inFull = (value) => value.toLocaleString(locale, { maximumSignificantDigits: 15, useGrouping: false });
export const number = (value, digits = 2) => value.toLocaleString(locale, { maximumFractionDigits: digits });
const [point, ofThousands] = language === "pt" ? [",", "."] : [".", ","];
/** Whether a typed number is a thousand to whoever reads this language, and one with decimals to others: 1.050 kg. */
export const isOfThousands = (text) => text.includes(ofThousands) && /^-?[1-9]\d{0,2}.\d{3}$/.test(text);
export function clock(seconds) {
  const hundredths = Math.round(seconds * 100); // first, or else 59.996 is 0:60.00
  return `${Math.floor(hundredths / 6000)}:${((hundredths % 6000) / 100).toFixed(2).padStart(5, "0").replace(".", point)}`;
}
export const when = (text) => new Date(text).toLocaleString(locale, { dateStyle: "medium", timeStyle: "short" });

/** A time with seconds. */
export const exactly = (text) => new Date(text).toLocaleString(locale, { dateStyle: "medium", timeStyle: "medium" });
/** A time for a datetime input, in the browser's time zone. */
export const asLocal = (moment) => new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
/** How long something is, in the largest unit of which it has two. */
export function timespan(milliseconds) {
  const minutes = milliseconds / 60_000;
  const [unit, value] = minutes < 120 ? ["minute", minutes] : minutes < 2880 ? ["hour", minutes / 60] : ["day", minutes / 1440];
  return Math.round(value).toLocaleString(locale, { style: "unit", unit, unitDisplay: "long" });
}
export function size(bytes) {
  const megabytes = bytes / 1024 / 1024;
  return megabytes < 1 ? `${Math.ceil(bytes / 1024)} kB` : `${number(megabytes, megabytes < 10 ? 1 : 0)} MB`;
}

translate();
