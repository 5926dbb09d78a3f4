// Who signed in by a personal link; null for the tenant's own token. The server decides what they may do: here only what
// it would refuse is not offered. Without a personal link the browser may know the person who marks.

import { at } from "/static/parts/page.js";
import { browser } from "/static/parts/remembered.js";

let who = null;

/** Whose turn it is in a session: the operator's who signed in, or the tenant's. No tenant's code has a slash. */
export const turnOf = ({ code, operator }) => (operator ? `${code}/${operator.id}` : code);

/** Keeps who signed in, and shows the way to the people to whoever did and may change them. What somebody else said at
 *  this screen is forgotten: their name, and when videos were filmed. Their session may have ended by itself. */
export function signIn(session) {
  who = session.operator;
  if (turnOf(session) !== browser.get("tenant")) {
    browser.forget("operator");
    browser.forgetAll("filmed:");
  }
  at("people").hidden = who ? !who.mayChangeSettings : browser.get("signed-in") === null;
}

export const signedIn = () => who;
/** The person who marks: whoever signed in, otherwise whoever was asked for once in this browser. */
export function operator() {
  try {
    return who ?? JSON.parse(browser.get("operator"));
  } catch {
    return null;
  }
}

/** Whether they may change a snap or delete a video. */
export const mayChange = ({ operatorId }) => !who || who.mayChangeAll || operatorId === who.id;
