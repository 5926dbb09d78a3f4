// Adds a video on another server: its address is typed, and our server checks that there is a video.

import { at, client, markInvalid, pause, put } from "/static/parts/page.js";
import { nameOfVideo } from "/static/home/library.js";
import { t, told } from "/static/parts/words.js";

const LOOK_EVERY = 1000; // ms between two looks at a video that is being examined
const LOOKS = 15; // after so many looks the video is shown even if it is not examined
const WITHIN = 60_000; // ms: the other server may be slow

const { ask, change } = client();

/** `arrived(video, isAwaited)` is called for each video that is added. The other server may be slow: if the user has
 *  turned to something else meanwhile, `isAwaited` is false, and neither player nor focus may be taken. */
export function begin(arrived) {
  at("remote").addEventListener("submit", async (event) => {
    event.preventDefault();
    const url = at("remote-url").value.trim();
    const flaw = /^https?:\/\/\S+$/i.test(url) ? "" : t("An address begins with http:// or https:// and holds no blanks.");
    complain(flaw, true);
    if (flaw) return;
    const [isAwaited, watched] = watch();
    at("remote-add").disabled = true;
    put(at("remote-said"), t("Looking at what lies there …"));
    try {
      const video = await examined(await change("/v2/videos/remote", { videoUrl: url }, { within: WITHIN }));
      arrived(video, isAwaited());
      at("remote-url").value = "";
      put(at("remote-said"), isAwaited() ? "" : t("{name} is here.", { name: nameOfVideo(video) }));
    } catch (error) {
      complain(told(error.message), isAwaited());
    } finally {
      watched.abort();
      at("remote-add").disabled = false;
    }
  });
}

/** A function that tells whether the user has used nothing else since, and the controller that ends this watching. */
function watch() {
  const watched = new AbortController();
  let isAwaited = true;
  const note = ({ target }) => (isAwaited &&= at("remote").contains(target));
  for (const name of ["keydown", "pointerdown"]) document.addEventListener(name, note, { capture: true, signal: watched.signal });
  return [() => isAwaited, watched];
}

function complain(flaw, takesFocus) {
  put(at("remote-wrong"), flaw);
  put(at("remote-said"), "");
  markInvalid(at("remote-url"), flaw);
  if (flaw && takesFocus) at("remote-url").focus();
}

async function examined(video) {
  let found = video;
  for (let look = 0; look < LOOKS && !found.videoProbe; look += 1) {
    await pause(LOOK_EVERY);
    found = await ask(`/v2/videos/${video.videoId}`);
  }
  return found;
}
