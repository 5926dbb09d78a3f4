// The page at /operators, which the server makes and which works without scripts. This shows a new link with the host,
// copies it, and draws its QR code.

import "/static/parts/times.js";
import { at, copied, put } from "/static/parts/page.js";
import { pictureOf } from "/static/parts/qr.js";
import { t } from "/static/parts/words.js";

const link = at("link"); // only where one was made

async function copy() {
  put(at("link-copy"), (await copied(link, link.href)) ? t("Copied") : t("Selected"));
}

if (link) {
  put(link, link.href);
  at("link-copy").hidden = false;
  at("link-copy").addEventListener("click", copy);
  const picture = pictureOf(link.href, t("QR code of the link"));
  at("link-code").hidden = !picture;
  if (picture) at("link-code").append(picture);
}
