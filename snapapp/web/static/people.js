// The page at /operators, which the server makes and which works without scripts. This shows a new link with the host,
// copies it, and draws its QR code.

import "/static/times.js";
import { at, put } from "/static/page.js";
import { pictureOf } from "/static/qr.js";
import { t } from "/static/words.js";

const link = at("link"); // only where one was made

async function copy() {
  try {
    await navigator.clipboard.writeText(link.href);
    put(at("link-copy"), t("Copied"));
  } catch {
    getSelection().selectAllChildren(link); // without https a page may not copy
  }
}

if (link) {
  put(link, link.href);
  at("link-copy").hidden = false;
  at("link-copy").addEventListener("click", copy);
  const picture = pictureOf(link.href, t("QR code of the link"));
  at("link-code").hidden = !picture;
  if (picture) at("link-code").append(picture);
}
