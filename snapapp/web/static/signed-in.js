// Who signed in by a personal link; null for the tenant's own token. The server decides what they may do: here only what
// it would refuse is not offered. Without a personal link the browser may know the person who marks.

import { at } from "/static/page.js";
import { browser } from "/static/remembered.js";

let who = null;

/** Keeps who signed in, and shows the way to the people to whoever did and may change them. */
export function signIn(person) {
  who = person;
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
