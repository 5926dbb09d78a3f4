// The page at /queue: the queue, live. What jobs say is text and stays text: nothing here is ever parsed as HTML.

import { Refused, at, client, make, pause, put } from "/static/page.js";

const LISTED = 60; // the newest jobs
const RUNNING_LISTED = 40; // running ones that are older than those
const POLL_EVERY = 2000; // ms, while there is no stream
const STREAM_AGAIN = 2000;
const HIDDEN_AFTER = 5000; // a browser has six connections to a server, and a forgotten tab would keep one
const SUMMARY_EVERY = 3000;
const COUNTED = 10_000; // jobs of a queue, by the server: one more means more

const STATES = {
  PENDING: ["○", "pending"],
  RUNNING: ["●", "running"],
  RETRY_WAIT: ["↻", "retry wait"],
  COMPLETED: ["✓", "completed"],
  FAILED: ["✕", "failed"],
  CANCELLED: ["⊘", "cancelled"],
};
const FINAL = new Set(["COMPLETED", "FAILED", "CANCELLED"]);
const EVENTS_OF_JOBS = /^job\.(added|active|progress|stopping|retried|waiting|completed|failed|cancelled)$/;

// --- asking the server -----------------------------------------------------------------------------------------

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? { "X-Internal-Token": token } : {};
}

const { send, ask, change } = client(headers);

/** Whether the door is closed; if so the page says what opens it. */
function isShutOut(error) {
  if (error.status === 401) askForToken();
  if (error.status === 403) explainDoor();
  return error.status === 401 || error.status === 403;
}

function askForToken() {
  const form = at("token");
  const wasWrong = sessionStorage.getItem("token") !== null;
  sessionStorage.removeItem("token");
  if (wasWrong) put(at("token-said"), "That token is not the one. Try again.");
  if (form.hidden) {
    form.hidden = false;
    at("token-value").focus();
  }
}

function explainDoor() {
  const port = location.port ? `:${location.port}` : "";
  at("notice").replaceChildren(
    "The queue is shown only to this machine, because the server has no internal token. Open the page as ",
    make("a", { href: `http://localhost${port}/queue`, textContent: `http://localhost${port}/queue` }),
    " there, or start the server with ",
    make("code", { textContent: "SNAPAPP_INTERNAL_TOKEN" }),
    " set: then this page asks for it.",
  );
  at("notice").hidden = false;
}

/** A proxy in front of the server, as ours is set up, knows no /internal. */
function explainProxy() {
  say("waiting", "not shown at this address");
  tell("The queue is shown on the server itself, and whoever runs it has closed it at this address.");
}

at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token-value").value.trim());
  at("token-value").value = "";
  open();
});

function openDoor() {
  const hadFocus = at("token").contains(document.activeElement);
  at("token").hidden = true;
  at("notice").hidden = true;
  for (const button of document.querySelectorAll("#starters button")) button.disabled = false;
  if (hadFocus) document.querySelector("#starters button").focus();
}

// --- the jobs that are known -----------------------------------------------------------------------------------

const jobs = new Map(); // by id, as the list of the API shows them
const changed = new Set(); // ids whose line is out of date
const rows = new Map(); // by id, the lines on the page
const claimedAt = new Map(); // by id, when a running job was seen to begin
const mine = new Set(); // what was started here: its end is spoken
let ahead = 0; // ms that the database's clock is ahead of this browser's
let painting = 0;

const now = () => Date.now() + ahead;

function learn(job, event = "") {
  jobs.set(job.id, job);
  if (event === "job.active") claimedAt.set(job.id, now());
  else if (job.status !== "RUNNING") claimedAt.delete(job.id);
  changed.add(job.id);
  if (mine.has(job.id) && FINAL.has(job.status)) {
    mine.delete(job.id);
    put(at("spoken"), `Job ${job.id}, ${job.kind}: ${STATES[job.status][1]}`);
  }
  if (job.id === shown) refreshSoon();
  paintSoon();
}

function forget(id) {
  drop(id);
  if (id === shown) refreshSoon();
  paintSoon();
}

function drop(id) {
  jobs.delete(id);
  claimedAt.delete(id);
}

function learnAll(snapshot) {
  ahead = Date.parse(snapshot.now) - Date.now();
  jobs.clear();
  put(at("none"), "No job yet. Start one above.");
  for (const job of [...snapshot.items, ...(snapshot.running ?? [])]) learn(job);
  paintSoon();
}

/** The ids to show, the newest first; what is beyond them is forgotten. */
function choose() {
  const ids = [...jobs.keys()].sort((one, other) => other - one);
  const older = ids.slice(LISTED).filter((id) => jobs.get(id).status === "RUNNING");
  const chosen = ids.slice(0, LISTED).concat(older.slice(0, RUNNING_LISTED));
  if (jobs.size > 1000) {
    const kept = new Set(chosen);
    for (const id of ids) if (!kept.has(id)) drop(id);
  }
  return chosen;
}

// --- the list: painted once a frame, however many events came ---------------------------------------------------

const canHover = matchMedia("(hover: hover)").matches;

function paintSoon() {
  if (!painting) painting = requestAnimationFrame(paint);
}

function paint() {
  painting = 0;
  const list = at("jobs");
  const ids = choose();
  const isHeld = rows.size > 0 && ((canHover && list.matches(":hover")) || list.matches(":focus-within"));
  if (isHeld) {
    const newer = ids.filter((id) => !rows.has(id)).length;
    put(at("held"), newer ? `${newer} not shown while you are in the list` : "");
  } else {
    put(at("held"), "");
    arrange(list, ids);
  }
  for (const id of changed) if (rows.has(id) && jobs.has(id)) draw(rows.get(id), jobs.get(id));
  changed.clear();
  at("none").hidden = rows.size > 0;
}

function arrange(list, ids) {
  const wanted = new Set(ids);
  for (const [id, row] of rows) {
    if (!wanted.has(id)) {
      row.item.remove();
      rows.delete(id);
    }
  }
  let place = list.firstElementChild;
  for (const id of ids) {
    let row = rows.get(id);
    if (!row) {
      row = line(id);
      rows.set(id, row);
      changed.add(id);
    }
    if (row.item === place) place = place.nextElementSibling;
    else list.insertBefore(row.item, place);
  }
}

function line(id) {
  const row = {
    link: make("a", { href: `#job-${id}`, className: "id", textContent: `#${id}` }),
    mark: make("span", { ariaHidden: "true" }),
    word: make("span"),
    kind: make("span", { className: "kind" }),
    bar: make("progress", { max: 100, hidden: true }),
    note: make("span", { className: "words" }),
    tries: make("span", { className: "tries" }),
    time: make("span", { className: "time" }),
  };
  row.state = make("span", { className: "state" }, row.mark, row.word);
  const note = make("span", { className: "note" }, row.bar, row.note);
  row.item = make("li", {}, row.link, row.state, row.kind, note, row.tries, row.time);
  row.bar.setAttribute("aria-label", `progress of job ${id}`);
  return row;
}

function draw(row, job) {
  const [mark, word] = STATES[job.status] ?? ["?", job.status];
  row.state.dataset.state = job.status;
  put(row.mark, mark);
  put(row.word, job.status === "RUNNING" && job.cancelRequestedAt ? "stopping" : word);
  put(row.kind, job.kind);
  const percent = percentOf(job);
  row.bar.hidden = percent === null;
  if (percent !== null) row.bar.value = percent;
  put(row.note, noteOf(job, percent));
  put(row.tries, `${job.attemptCount}/${job.maxAttempts}`);
  row.tries.title = `attempt ${job.attemptCount} of at most ${job.maxAttempts}`;
  put(row.time, timeOf(job));
}

function percentOf(job) {
  const percent = job.status === "RUNNING" ? job.progress?.percent : undefined;
  return typeof percent === "number" ? Math.min(100, Math.max(0, percent)) : null;
}

function noteOf(job, percent) {
  if (job.status === "RUNNING") {
    const said = typeof job.progress?.note === "string" ? job.progress.note : "";
    return percent === null ? said : `${Math.round(percent)} % ${said}`.trim();
  }
  if (job.status === "COMPLETED" || job.lastError === null) return "";
  return job.lastError.split("\n", 1)[0];
}

function timeOf(job) {
  switch (job.status) {
    case "PENDING":
    case "RETRY_WAIT": {
      if (job.waitsFor) return `after ${job.waitsFor} jobs`;
      const left = Date.parse(job.nextRetryAt) - now();
      return left > 0 ? `in ${span(left)}` : `due ${span(-left)}`;
    }
    case "RUNNING":
      return claimedAt.has(job.id) || job.startedAt ? `for ${span(now() - startOf(job))}` : "claimed";
  }
  return job.startedAt && job.finishedAt ? `took ${span(Date.parse(job.finishedAt) - Date.parse(job.startedAt))}` : "";
}

/** A start is on its row with the first heartbeat, up to 10 s later; until then, when we saw the claim. */
const startOf = (job) => (job.startedAt ? Date.parse(job.startedAt) : claimedAt.get(job.id));

function span(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 1) return seconds < 0.001 ? "< 1 ms" : `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

setInterval(() => {
  for (const [id, row] of rows) {
    const job = jobs.get(id);
    if (job && !FINAL.has(job.status)) put(row.time, timeOf(job));
  }
}, 1000);

at("jobs").addEventListener("pointerleave", paintSoon);
at("jobs").addEventListener("focusout", paintSoon);
at("jobs").addEventListener("click", (event) => {
  const isPlain = !event.target.closest("a") && String(getSelection()) === "";
  if (isPlain) event.target.closest("li")?.querySelector("a").click();
});

// --- following: the stream, or polling where there is none ------------------------------------------------------

let following = null; // the AbortController of what runs

function open() {
  following?.abort();
  following = new AbortController();
  void follow(following.signal);
  void summarise();
}

function close() {
  following?.abort();
  following = null;
  say("waiting", "paused");
}

function say(state, words) {
  at("link").dataset.state = state;
  put(at("link-said"), words);
}

async function follow(signal) {
  while (!signal.aborted) {
    try {
      await readStream(signal);
      if (!signal.aborted) say("waiting", "the server has closed, trying again");
    } catch (error) {
      if (signal.aborted) return;
      if (isShutOut(error)) return say("waiting", "not allowed in");
      if (error.status === 404) return explainProxy();
      say("waiting", "no live stream, trying again");
    }
    if (!signal.aborted) await poll(signal);
    await pause(STREAM_AGAIN, signal);
  }
}

async function poll(signal) {
  try {
    learnAll(await ask("/internal/jobs?limit=50"));
    if (!signal.aborted) say("polling", `asking every ${POLL_EVERY / 1000} s`);
  } catch (error) {
    if (isShutOut(error)) close();
    else say("away", error instanceof Refused ? error.message : "the server does not answer, trying again");
  }
}

async function readStream(signal) {
  const silent = new AbortController(); // pings come every 15 s
  let timer = 0;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(), 40_000);
  };
  alive();
  try {
    const answer = await send("/internal/jobs/stream", { signal: AbortSignal.any([signal, silent.signal]) });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) hear(block);
    }
  } finally {
    clearTimeout(timer);
  }
}

function hear(block) {
  let name = "";
  let data = "";
  for (const part of block.split("\n")) {
    if (part.startsWith("event: ")) name = part.slice(7);
    else if (part.startsWith("data: ")) data += part.slice(6);
  }
  if (EVENTS_OF_JOBS.test(name)) return learn(JSON.parse(data), name);
  switch (name) {
    case "snapshot":
      openDoor();
      learnAll(JSON.parse(data));
      return say("live", "live");
    case "job.removed":
      return forget(JSON.parse(data).id);
    case "database.away":
      return say("away", "the database is away");
    case "database.back":
      return say("live", "live");
  }
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    if (following === null && at("token").hidden) open();
    return;
  }
  setTimeout(() => document.hidden && close(), HIDDEN_AFTER);
});

// --- starting jobs ---------------------------------------------------------------------------------------------

at("starters").addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { kind, payload, attempts } = button.dataset;
  const wanted = { kind, payload: JSON.parse(payload), ...(attempts && { maxAttempts: Number(attempts) }) };
  try {
    const made = await change("/internal/jobs", wanted);
    mine.add(made.id);
    const known = jobs.get(made.id); // its first events may have been quicker than the answer
    if (known) learn(known);
    if (made.note) tell(made.note);
    else at("notice").hidden = true;
  } catch (error) {
    if (!isShutOut(error)) tell(`${kind} was not started: ${error.message}`);
  }
});

function tell(words) {
  put(at("notice"), words);
  at("notice").hidden = false;
}

// --- one job ---------------------------------------------------------------------------------------------------

let shown = null; // the id of the job in the dialog
let refreshing = 0;

function showHash() {
  const found = /^#job-([1-9][0-9]{0,18})$/.exec(location.hash);
  if (!found) return at("job").open && at("job").close();
  shown = Number(found[1]);
  put(at("job-title"), `Job ${found[1]}`);
  put(at("job-state"), "");
  put(at("job-said"), "");
  at("job-body").replaceChildren(make("p", { className: "quiet", textContent: "…" }));
  hideActions();
  if (!at("job").open) at("job").showModal();
  void refresh();
}

function refreshSoon() {
  if (!refreshing) refreshing = setTimeout(refresh, 250);
}

async function refresh() {
  clearTimeout(refreshing);
  refreshing = 0;
  const id = shown;
  if (id === null) return;
  try {
    const job = await ask(`/internal/jobs/${id}`);
    if (id !== shown) return;
    describe(job);
    if (job.status === "RUNNING") refreshing = setTimeout(refresh, 1000);
  } catch (error) {
    if (id !== shown || isShutOut(error)) return;
    put(at("job-said"), error.message);
    if (error.status === 404) hideActions();
  }
}

function hideActions() {
  for (const name of ["retry", "cancel", "replay"]) at(`job-${name}`).hidden = true;
}

function describe(job) {
  const [mark, word] = STATES[job.status] ?? ["?", job.status];
  put(at("job-title"), `Job ${job.id} · ${job.kind}`);
  at("job-state").dataset.state = job.status;
  at("job-state").replaceChildren(make("span", { ariaHidden: "true", textContent: mark }), ` ${word}`);
  at("job-retry").hidden = job.status !== "FAILED" && job.status !== "CANCELLED";
  at("job-cancel").hidden = FINAL.has(job.status);
  at("job-replay").hidden = false;
  const opened = new Set([...at("job-body").querySelectorAll("details[open]")].map((each) => each.dataset.key));
  at("job-body").replaceChildren(
    ...[explanation(job), facts(job), values(job), attempts(job, opened), log(job), elsewhere(job)].flat(),
  );
}

function explanation(job) {
  return job.explain ? [make("p", { className: "explain", textContent: job.explain })] : [];
}

function facts(job) {
  const list = make("dl");
  const percent = percentOf(job);
  const add = (name, value) =>
    value === null || value === undefined || value === "" || list.append(make("dt", { textContent: name }), make("dd", {}, value));
  if (percent !== null) add("progress", make("progress", { max: 100, value: percent, ariaLabel: "progress" }));
  if (!FINAL.has(job.status)) add("says", noteOf(job, percent));
  add("queue", job.priority ? `${job.queue}, priority ${job.priority}` : job.queue);
  add("tenant", job.tenant);
  add("attempt", `${job.attemptCount} of at most ${job.maxAttempts}`);
  add("created", moment(job.createdAt));
  add(FINAL.has(job.status) ? "could run" : "may run", moment(job.nextRetryAt));
  add("started", moment(job.startedAt));
  add("finished", moment(job.finishedAt));
  add("waited", typeof job.waitedMs === "number" ? span(job.waitedMs) : null);
  add("ran", typeof job.ranMs === "number" ? span(job.ranMs) : null);
  add("worker", job.claimedBy);
  add("heartbeat", moment(job.lockedAt));
  add("asked to stop", moment(job.cancelRequestedAt));
  add("unique key", job.uniqueKey);
  add("request", job.requestId);
  add("repeats", job.replayOf && make("a", { href: `#job-${job.replayOf}`, textContent: `job ${job.replayOf}` }));
  return [list];
}

function moment(text) {
  if (!text) return null;
  const away = now() - Date.parse(text);
  const clock = new Date(text).toLocaleString([], { dateStyle: "short", timeStyle: "medium" });
  return make("time", { dateTime: text, textContent: `${clock}, ${away < 0 ? `in ${span(-away)}` : `${span(away)} ago`}` });
}

function values(job) {
  const parts = [make("h3", { textContent: "Payload" }), pre(JSON.stringify(job.payload, null, 2))];
  if (job.result !== null) parts.push(make("h3", { textContent: "Result" }), pre(JSON.stringify(job.result, null, 2)));
  return parts;
}

function pre(text) {
  return make("pre", { textContent: text, tabIndex: 0 });
}

function attempts(job, opened) {
  const errors = Array.isArray(job.errors) ? job.errors : [];
  if (!errors.length) return [];
  const list = errors.map((error) => {
    const said = `attempt ${error.attempt}: ${error.error}`;
    if (!error.trace) return make("p", { className: "error", textContent: said });
    const fold = make("details", { className: "error" }, make("summary", { textContent: said }), pre(error.trace));
    fold.dataset.key = String(error.attempt);
    fold.open = opened.has(fold.dataset.key);
    return fold;
  });
  return [make("h3", { textContent: "What went wrong" }), ...list];
}

function log(job) {
  if (!job.logs?.length) return [];
  const list = job.logs.map((said) =>
    make(
      "li",
      { className: said.level.toLowerCase() },
      make("time", { dateTime: said.at, textContent: new Date(said.at).toLocaleTimeString() }),
      make("span", { className: "level", textContent: said.level.toLowerCase() }),
      make("span", { textContent: said.message }),
    ),
  );
  return [make("h3", { textContent: "What it said" }), make("ol", { className: "log" }, ...list)];
}

function elsewhere(job) {
  const lines = [`SELECT * FROM snap_processing_job WHERE id = ${job.id} \\gx`, `snapapp jobs show ${job.id}`];
  return [make("h3", { textContent: "The same, in psql and in a shell" }), ...lines.map(code)];
}

function code(text) {
  const box = make("div", { className: "code" }, make("code", { textContent: text }));
  addCopy(box);
  return box;
}

for (const [name, done] of [["retry", "It runs again."], ["cancel", ""], ["replay", ""]]) {
  at(`job-${name}`).addEventListener("click", async () => {
    const id = shown;
    try {
      const job = await change(`/internal/jobs/${id}/${name}`);
      mine.add(job.id);
      learn(job);
      put(at("job-said"), done || sentence(name, job));
      if (name === "replay") location.hash = `#job-${job.id}`;
      else await refresh();
    } catch (error) {
      if (!isShutOut(error)) put(at("job-said"), error.message);
    }
  });
}

function sentence(name, job) {
  if (name === "replay") return "";
  return job.status === "RUNNING" ? "It was asked to stop." : "It is cancelled.";
}

at("job").addEventListener("close", () => {
  const id = shown;
  shown = null;
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  rows.get(id)?.link.focus({ preventScroll: true });
});
at("job").addEventListener("click", (event) => event.target === at("job") && at("job").close());
at("job-close").addEventListener("click", () => at("job").close());
addEventListener("hashchange", showHash);

// --- the rest of the house -------------------------------------------------------------------------------------

async function summarise() {
  await Promise.allSettled([showHealth(), showQueues(), showWorkers()]);
}

async function showHealth() {
  try {
    const answer = await fetch("/actuator/health", { headers: headers(), cache: "no-store", signal: AbortSignal.timeout(10_000) });
    const { status, components = {} } = await answer.json();
    const parts = Object.entries(components).map(([name, part]) => partOf(name, part));
    at("health").dataset.state = status;
    put(at("health-said"), `${status === "UP" ? "All is well" : "Not well"}: ${parts.join(" · ")}`);
  } catch {
    at("health").dataset.state = "DOWN";
    put(at("health-said"), "The server does not answer.");
  }
}

function partOf(name, part) {
  if (part.status !== "UP") return `${name} DOWN${part.error ? `, ${part.error}` : ""}`;
  if (Object.keys(part).length === 1) return name; // more is told to those who may know
  if (name === "database") return `database ${part.answeredInMs ?? "?"} ms`;
  if (name === "worker") return `worker ${part.state}${part.note ? `, ${part.note}` : ""}`;
  if (name === "listener") return part.state;
  if (name === "disk") return `disk ${Math.round(part.freeMb / 1024)} GB free`;
  return name;
}

async function showQueues() {
  await table("queues", "/internal/queues", "Nothing waits, runs or failed.", (queue, queues) => [
    queue.pausedAt ? `${queue.queue} (paused)` : queue.queue,
    counted(queue.pending + queue.retryWait),
    counted(queue.running, sum(queues, "running")),
    counted(queue.failed, sum(queues, "failed")),
  ]);
}

// `of` all that were counted with them, which may be fewer than there are.
function counted(jobs, of = jobs) {
  return of > COUNTED ? `${Math.min(jobs, COUNTED).toLocaleString("en")}+` : jobs;
}

function sum(items, name) {
  return items.reduce((total, item) => total + item[name], 0);
}

async function showWorkers() {
  await table("workers", "/internal/workers", "No worker is on the roster.", (worker) => [
    worker.status === "ACTIVE" ? worker.name : `${worker.name} (${worker.status.toLowerCase()})`,
    `${worker.currentJobs.length}/${worker.slots}`,
    worker.jobsCompleted,
    worker.jobsFailed,
  ]);
}

async function table(name, path, empty, cells) {
  const said = at(`${name}-said`);
  if (following === null) return;
  try {
    const { items } = await ask(path);
    const lines = items.slice(0, 20).map((item) => make("tr", {}, ...cells(item, items).map((cell, place) => cellOf(cell, place))));
    at(name).tBodies[0].replaceChildren(...lines);
    put(said, items.length ? (items.length > 20 ? `and ${items.length - 20} more` : "") : empty);
  } catch (error) {
    put(said, error.status === 401 || error.status === 403 ? "Not shown without permission." : "Not to be had now.");
  }
}

function cellOf(cell, place) {
  return make(place ? "td" : "th", { textContent: String(cell), ...(place || { scope: "row" }) });
}

function addCopy(box) {
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(box.querySelector("code").textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(box.querySelector("code"));
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  box.append(button);
}

for (const box of document.querySelectorAll("[data-copy]")) addCopy(box);
setInterval(() => document.hidden || summarise(), SUMMARY_EVERY);
open();
showHash();
