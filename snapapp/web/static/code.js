// A line of code with a button that copies it.

import { make, put } from "/static/page.js";

export function code(text = "") {
  const said = make("code", { textContent: text });
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(said.textContent);
      put(button, "Copied");
    } catch {
      getSelection().selectAllChildren(said);
      put(button, "Selected");
    }
    setTimeout(() => put(button, "Copy"), 1500);
  });
  return make("div", { className: "code" }, said, button);
}
