// Caches the page at / and its files, so that the page opens offline and shows the marks that wait to be sent. The
// server is always asked first; the cache is used only if it cannot be reached. No tenant's data is cached.

const KEPT = "shell";
const AWAY = [502, 503, 504]; // a proxy says that it cannot reach the server
const SHELL = [
  "/",
  ...[
    "app.css", "work.css", "favicon.svg",
    "home/filmed.js", "home/home.js", "home/library.js", "home/marking.js", "home/moments.js", "home/operator.js", "home/player.js",
    "home/remote.js", "home/sending.js", "home/shell.js", "home/tus.js", "home/uploads.js", "home/waiting.js",
    "parts/moment.js", "parts/page.js", "parts/portuguese.js", "parts/remembered.js", "parts/signed-in.js", "parts/words.js",
  ].map((name) => `/static/${name}`),
];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(KEPT).then((kept) => kept.addAll(SHELL)).then(() => skipWaiting()));
});
addEventListener("activate", (event) => event.waitUntil(clients.claim()));

addEventListener("fetch", (event) => {
  const { pathname, origin } = new URL(event.request.url);
  const isShell = origin === location.origin && event.request.method === "GET" && SHELL.includes(pathname);
  if (isShell) event.respondWith(answered(event.request, pathname));
});

async function answered(request, path) {
  let answer;
  try {
    answer = await fetch(request);
    if (!AWAY.includes(answer.status)) return await keep(path, answer);
  } catch (error) {
    answer = error;
  }
  const found = await caches.open(KEPT).then((kept) => kept.match(path));
  if (!found && answer instanceof Error) throw answer;
  return found ?? answer;
}

/** The answer, which is kept if the browser has room: what the server sent is used in any case, and not what was kept
 *  before. */
async function keep(path, answer) {
  if (answer.ok) await caches.open(KEPT).then((kept) => kept.put(path, answer.clone())).catch(() => {});
  return answer;
}
