// The page at /sign-in, which the server makes and which works without scripts. This notes for the page at / that
// somebody signs in.

import "/static/parts/words.js";
import { at } from "/static/parts/page.js";
import { browser } from "/static/parts/remembered.js";

at("token").form.addEventListener("submit", () => browser.set("signed-in", "yes"));
