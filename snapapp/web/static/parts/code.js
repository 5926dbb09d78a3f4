// A line of code with a button that copies it.

import { copied, make, put } from "/static/parts/page.js";

export function code(text = "") {
  const said = make("code", { textContent: text });
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    put(button, (await copied(said)) ? "Copied" : "Selected");
    setTimeout(() => put(button, "Copy"), 1500);
  });
  return make("div", { className: "code" }, said, button);
}
