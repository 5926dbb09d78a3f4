// The person who marks: whoever signed in by a personal link; otherwise asked for once in a browser and kept there, until
// somebody changes it.

import { at, put } from "/static/parts/page.js";
import { browser } from "/static/parts/remembered.js";
import { operator, signedIn } from "/static/parts/signed-in.js";
import { isolated, t } from "/static/parts/words.js";

export function showOperator() {
  const known = operator();
  at("operator").disabled = signedIn() !== null;
  put(at("operator"), known ? known.nickname : t("Who are you?"));
  at("operator").title = known ? `${isolated(known.nickname)}, ${known.email}` : "";
}

/** The operator, who is asked for if the browser does not know yet; null if the question was not answered. */
export function operatorOrAsk() {
  return operator() ?? askOperator();
}

function askOperator() {
  const known = operator();
  at("who-name").value = known?.nickname ?? "";
  at("who-email").value = known?.email ?? "";
  at("who").returnValue = "";
  at("who").showModal();
  return new Promise((done) => at("who").addEventListener("close", () => (showOperator(), done(at("who").returnValue === "ok" ? operator() : null)), { once: true }));
}

at("operator").addEventListener("click", askOperator);
at("who-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const said = { nickname: at("who-name").value.trim(), email: at("who-email").value.trim().toLowerCase() };
  if (!said.nickname) return at("who-name").focus();
  browser.set("operator", JSON.stringify(said));
  at("who").close("ok");
});
at("who-cancel").addEventListener("click", () => at("who").close(""));
