// A video that lies on another server: somebody types its address, and ours looks whether there is one.

import { at, client, markInvalid, pause, put } from "/static/page.js";
import { t, told } from "/static/words.js";

const LOOK_EVERY = 1000; // ms, at one that is being examined
const LOOKS = 15; // then it is shown all the same
const WITHIN = 60_000; // ms: the other server may be slow

const { ask, change } = client();

/** `arrived(video)` is called for each that is known from now on. */
export function begin(arrived) {
  at("remote").addEventListener("submit", async (event) => {
    event.preventDefault();
    const url = at("remote-url").value.trim();
    const flaw = /^https?:\/\/\S+$/i.test(url) ? "" : t("An address begins with http:// or https:// and holds no blanks.");
    complain(flaw);
    if (flaw) return;
    at("remote-add").disabled = true;
    put(at("remote-said"), t("Looking at what lies there …"));
    try {
      arrived(await examined(await change("/v2/videos/remote", { videoUrl: url }, { within: WITHIN })));
      at("remote-url").value = "";
      put(at("remote-said"), "");
    } catch (error) {
      complain(told(error.message));
    } finally {
      at("remote-add").disabled = false;
    }
  });
}

function complain(flaw) {
  put(at("remote-wrong"), flaw);
  put(at("remote-said"), "");
  markInvalid(at("remote-url"), flaw);
  if (flaw) at("remote-url").focus();
}

async function examined(video) {
  let found = video;
  for (let look = 0; look < LOOKS && !found.videoProbe; look += 1) {
    await pause(LOOK_EVERY);
    found = await ask(`/v2/videos/${video.videoId}`);
  }
  return found;
}
