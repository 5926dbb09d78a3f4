// The view of the present: numbers of jobs by state, speed, failures, and the doctor's findings.

import { code } from "/static/parts/code.js";
import { make, put } from "/static/parts/page.js";
import {
  COUNTED, ENDS, HOUR, NOT_YET, ask, button, bytes, change, changeButton, counted, endedSince, endedWithin, link, linked, literal,
  loadPanels, moment, number, panel, query, renew, renewAroundFolds, saidOf, span, speak, sum, sure, table, tile,
} from "/static/ops/parts.js";
import { DEPTH_SQL, QUEUE_COLUMNS, lastHour, pathOf, queueRow } from "/static/ops/queues.js";
import { pathOf as pathOfSchedule } from "/static/ops/schedules.js";
import { many } from "/static/ops/many.js";
import { plot, plotBars } from "/static/ops/plots.js";
import { tab } from "/static/parts/remembered.js";

const EVERY = 3000; // ms between two looks
const DOCTOR_EVERY = 20_000;
const RATE_OVER = 5; // minutes
const ALIKE = 10; // findings of one sort that are shown
const REPEATED = `/ops/jobs${query({ status: "RETRY_WAIT" })}`;
// Their notices advise on how the server is set up, and stay until somebody changes that.
const OF_SET_UP = new Set(["settings", "cost", "indexes", "backups"]);
// the status of the jobs that a finding is about
const OF_STATUS = { DEAD_LETTERS: "FAILED", MOSTLY_REPEATED: "RETRY_WAIT", QUEUE_PAUSED: "PENDING" };

const GROUPS_SQL = `SELECT kind, job_error_line(last_error) AS error, count(*), max(finished_at) AS last, max(id) AS newest
  FROM (SELECT * FROM snap_processing_job
         WHERE status = 'FAILED' ORDER BY id DESC LIMIT 5000) AS newest
 GROUP BY 1, 2 ORDER BY 3 DESC;`;

const MINUTES_SQL = `SELECT at, completed, failed, cancelled, retried
  FROM job_history WHERE kind = '' AND at > now() - interval '1 hour' ORDER BY at;`;

/** How many ended a minute, of the last whole minutes and of what has passed of this one. */
export function perMinute(items, now) {
  const over = RATE_OVER * 60_000 + (now % 60_000);
  const last = items.filter((its) => now - Date.parse(its.at) <= over);
  return (sum(last, "completed") + sum(last, "failed") + sum(last, "cancelled")) / (over / 60_000);
}

export function nowView({ again, go }) {
  const health = make("p", { className: "health", id: "health" });
  const tiles = make("div", { className: "tiles" }, ...["Waiting", "Running", "Failed", "Oldest due"].map((title) => tile(title, "…", "/ops/queues")));
  const rate = make("p", { className: "quiet" });
  const pace = plot("Ended, minute by minute", { sql: MINUTES_SQL, note: "attempts that ran to their end" }, rate);
  put(pace.from, "an hour ago");
  pace.element.append(make("p", { className: "further" }, link("/ops/history?over=24h", "A day"), link("/ops/history?over=7d", "A week"), link("/ops/history", "Pickup and run time")));
  const times = lastHour("Pickup and run time, the last hour");
  const findings = make("ul", { className: "findings" });
  const doctor = panel("What the doctor finds", {}, findings);
  doctor.querySelector(".head").append(button("Look again", () => look(true).catch(() => again()), { className: "sql" }));
  const queues = table(
    QUEUE_COLUMNS,
    "Nothing waits, runs or failed.",
  );
  const depth = panel("Queues", { sql: DEPTH_SQL }, queues.element);
  const groups = table(
    [["What went wrong", "wide"], ["Kind"], ["Jobs", "num"], ["10 min", "num"], ["1 h", "num"], ["Last", "num"], ["", "acts"]],
    "No job has failed for good.",
  );
  const older = make("p", { className: "quiet" });
  const failures = panel(
    "Failures by what went wrong",
    { sql: GROUPS_SQL, note: "the same first line of an error is one row" }, groups.element, older,
  );
  failures.id = "failures";
  const depthAndTiles = async () => {
    const { items } = await ask("/internal/queues");
    const limits = sum(items, "due") ? (await ask("/internal/limits")).items : [];
    showQueues(items, limits.filter((its) => its.keysFull).map((its) => its.keyPattern));
  };
  let lookedAt = -Infinity;
  let seen = null; // what the doctor found last; null: not examined yet

  async function look(isAsked = false) {
    if (!isAsked && performance.now() - lookedAt < DOCTOR_EVERY) return NOT_YET;
    const diagnosis = await ask(`/internal/doctor${isAsked ? "?anew=true" : ""}`);
    lookedAt = performance.now();
    const count = (which) => new Set(diagnosis.findings.filter(which).map((its) => its.id)).size;
    seen = { at: lookedAt, urgent: count(isUrgent), noticed: count((its) => its.severity === "notice" && !isOfSetUp(its)) };
    void showHealth(health, seen);
    renewAroundFolds(findings, findingsOf(diagnosis, () => look(true).catch(() => again())));
  }

  function showQueues(items, full) {
    const oldest = items.filter((its) => its.oldestId).sort((one, other) => other.oldestDueSeconds - one.oldestDueSeconds)[0];
    const waiting = items.reduce((total, its) => total + its.pending + its.retryWait, 0);
    const isMore = items.some((its) => its.pending + its.retryWait > COUNTED);
    const running = sum(items, "running");
    const failed = sum(items, "failed");
    renew(tiles, [
      tile("Waiting", number(waiting) + (isMore ? "+" : ""), whereTheyWait(items), `${number(sum(items, "due"))} due now${full.length ? `; full: the limit ${full.slice(0, 3).join(", ")}` : ""}`),
      tile("Running", counted(running), `/ops/jobs${query({ status: "RUNNING" })}`),
      tile("Failed", counted(failed), `/ops/jobs${query({ status: "FAILED" })}`, "for good: dead letters", failed ? "bad" : ""),
      tile("Oldest due", oldest ? span(oldest.oldestDueSeconds * 1000) : "none", oldest ? `/ops/jobs/${oldest.oldestId}` : "/ops/queues", oldest ? `job ${oldest.oldestId} in ${oldest.queue}` : "no job is due"),
    ]);
    queues.fill(items.map((its) => queueRow(its, running, failed, again)));
  }

  async function showPace() {
    const { items } = await ask("/internal/history?over=1h");
    const to = (at, step, name) => (name === "retried" ? REPEATED : endedWithin(at, at + step, { status: name.toUpperCase() }));
    plotBars(pace.chart, { items, names: ENDS, length: HOUR, step: 60_000, to, go });
    const hour = (status) => link(endedSince(HOUR, { status: status.toUpperCase() }), `${number(sum(items, status))} ${status}`);
    rate.replaceChildren(
      link(endedSince(RATE_OVER * 60_000), `${number(Math.round(perMinute(items, Date.now())))} a minute`), ` over the last ${RATE_OVER}; in the last hour `,
      hour("completed"), ", ", hour("failed"), ", ", hour("cancelled"), "; ",
      link(REPEATED, `${number(sum(items, "retried"))} attempts failed and are repeated`), ".",
    );
  }

  async function showFailures() {
    const found = await ask("/internal/failures");
    groups.fill(found.items.map((its) => groupRow(its, again)));
    const rest = found.seen - sum(found.items, "jobs");
    const others = rest ? `${number(rest)} more went wrong in other ways. ` : "";
    put(older, others + (found.more ? `Of the newest ${number(found.seen)} dead letters; there are older ones.` : ""));
  }

  return {
    title: "Now",
    every: EVERY,
    element: make(
      "div", {},
      make("h1", { className: "unseen", textContent: "Now" }),
      health, tiles,
      make("div", { className: "two" }, doctor, pace.element),
      failures, times.element, depth, tryIt(again),
    ),
    async refresh() {
      void showHealth(health, seen);
      await loadPanels([[depth, depthAndTiles], [pace.element, showPace], [failures, showFailures], [times.element, times.show], [doctor, () => look()]]);
    },
  };
}

/** The address of the waiting jobs. A list shows one state: if jobs of both states wait, it is that of the queues. */
function whereTheyWait(items) {
  if (!sum(items, "retryWait")) return `/ops/jobs${query({ status: "PENDING" })}`;
  return sum(items, "pending") ? "/ops/queues" : `/ops/jobs${query({ status: "RETRY_WAIT" })}`;
}

function groupRow(its, again) {
  const filter = { kind: its.kind, errorLine: its.line };
  const href = `/ops/jobs${query({ status: "FAILED", kind: its.kind })}${its.line ? `&${new URLSearchParams({ errorLine: its.line })}` : ""}`;
  const lately = (milliseconds) => `${endedSince(milliseconds, { status: "FAILED", kind: its.kind })}&${new URLSearchParams({ errorLine: its.line })}`;
  const words = `${its.kind}: ${its.line || "(no error was written down)"}`;
  return [
    link(href, its.line || "(no error was written down)"),
    make("code", { textContent: its.kind }),
    link(href, number(its.jobs)),
    link(lately(HOUR / 6), number(its.lastTenMinutes)),
    link(lately(HOUR), number(its.lastHour)),
    moment(its.lastAt),
    make(
      "span", { className: "buttons" },
      changeButton("Retry …", () => many("retry", filter, words, again)),
      changeButton("Discard …", () => many("discard", filter, words, again)),
    ),
  ];
}

// --- the doctor --------------------------------------------------------------------------------------------------

/** The findings, the worst first, those about jobs before others. Repeated findings of one check are one line. */
function findingsOf({ findings, generatedAt }, fixed) {
  const worst = ["critical", "warning", "notice"];
  const wrong = findings.filter((its) => its.severity !== "ok");
  const rank = (its) => 2 * worst.indexOf(its.severity) + (waysFrom(its).length ? 0 : 1);
  wrong.sort((one, other) => rank(one) - rank(other));
  const alike = new Map();
  for (const its of wrong) alike.set(its.id, [...(alike.get(its.id) ?? []), its]);
  const well = findings.length - wrong.length;
  const rest = make("li", { className: "quiet", textContent: `${well} checks found nothing wrong, ${new Date(generatedAt).toLocaleTimeString()}.` });
  const [advice, now] = [[], []];
  for (const those of alike.values()) (those.every(isOfSetUp) ? advice : now).push(finding(those, fixed));
  return [...now, rest, ...(advice.length ? [adviceOf(advice)] : [])];
}

const isUrgent = (its) => its.severity === "critical" || its.severity === "warning";
const isOfSetUp = (its) => its.severity === "notice" && OF_SET_UP.has(its.check);

function adviceOf(items) {
  const words = `advice on how it is set up: ${items.length}`;
  const fold = make("details", {}, make("summary", { textContent: words }), make("ul", { className: "findings" }, ...items));
  fold.dataset.key = "advice";
  return make("li", {}, fold);
}

function finding([its, ...others], fixed) {
  const mark = make("span", { className: "severity", textContent: its.severity });
  mark.dataset.severity = its.severity;
  const item = make("li", {}, make("p", {}, mark, " ", ...linked(its.saw)));
  if (isUrgent(its) && its.do) item.append(make("p", { className: "cure", textContent: its.do }));
  if (isUrgent(its) && its.paste) item.append(code(its.paste));
  const inside = isUrgent(its) ? "why" : "why, and what to do";
  const fold = make("details", {}, make("summary", { textContent: others.length ? `${inside}, and ${others.length} more like it` : inside }));
  fold.dataset.key = its.id;
  for (const text of [its.why, isUrgent(its) ? "" : its.do]) if (text) fold.append(make("p", { textContent: text }));
  if (its.paste && !isUrgent(its)) fold.append(code(its.paste));
  if (its.canFix) fold.append(make("p", { className: "quiet" }, "In a terminal it is ", make("code", { textContent: "snapapp doctor --fix" })));
  for (const other of others.slice(0, ALIKE)) fold.append(make("p", { className: "quiet" }, other.saw, " ", ...fixesOf(other, fixed)));
  item.append(make("p", { className: "ways" }, ...waysFrom(its), ...fixesOf(its, fixed)), fold);
  return item;
}

/** Links to the jobs, the queue or the view that a finding is about. */
function waysFrom({ id, saw, numbers: its }) {
  const jobs = [its.job, its.oldest, its.newest, ...(Array.isArray(its.jobs) ? its.jobs : [])].filter(Number.isInteger).slice(0, ALIKE);
  const isSaid = (job) => new RegExp(`\\bjob ${job}\\b`).test(saw);
  const ways = jobs.filter((job) => !isSaid(job)).map((job) => link(`/ops/jobs/${job}`, `job ${job}`));
  const status = its.waiting === 0 ? "FAILED" : OF_STATUS[id];
  if (its.kind || its.queue) ways.push(link(`/ops/jobs${query({ kind: its.kind, queue: its.queue, status })}`, "its jobs"));
  if ("lanes" in its) ways.push(link("/ops/queues", "limits"));
  if (its.schedule) ways.push(link(`/ops/schedules/${encodeURIComponent(its.schedule)}`, "its schedule"));
  if (its.worker) ways.push(link("/ops/workers", "workers"));
  else if (its.pid && !its.host) ways.push(link("/ops/box", "who is connected"));
  return ways;
}

/** Buttons for the safe repairs of a finding. Each asks first, and is recorded in the audit. */
function fixesOf(its, fixed) {
  const { queue, schedule } = its.numbers;
  const fix = (words, title, path, body) => changeButton(words, () => sure({
    title, text: its.saw, yes: title, act: () => change(path, body, { within: 600_000 }), done: (answer) => {
      if (answer.items?.length) speak(answer.items.map((each) => each.said).join(" "));
      fixed();
    },
  }));
  if (its.id === "QUEUE_PAUSED") return [fix("Resume …", `Resume ${queue}`, `${pathOf(queue)}/resume`)];
  if (its.id === "SCHEDULE_PAUSED") {
    const path = pathOfSchedule(schedule);
    return [fix("Resume …", `Resume ${schedule}`, `${path}/resume`), " ", fix("Run now …", `Run ${schedule} now`, `${path}/run`)];
  }
  if (its.canFix) return [fix("Mend …", "Mend it", "/internal/doctor/fix", { check: its.check, id: its.id })];
  return [];
}

// --- health, which is shown whatever else fails --------------------------------------------------------------------

async function showHealth(element, seen) {
  try {
    const token = tab.get("token");
    const answer = await fetch("/actuator/health", {
      headers: token ? { "X-Internal-Token": token } : {}, cache: "no-store", signal: AbortSignal.timeout(10_000),
    });
    const { status, components = {} } = await answer.json();
    element.dataset.state = status === "UP" && seen?.urgent ? "WARNED" : status;
    element.replaceChildren(
      make("span", { className: "dot", ariaHidden: "true" }),
      ` ${verdict(status, seen)} ${Object.entries(components).map(([name, part]) => partOf(name, part)).filter(Boolean).join(" · ")}`,
    );
  } catch {
    element.dataset.state = "DOWN";
    element.replaceChildren(make("span", { className: "dot", ariaHidden: "true" }), " The server does not answer.");
  }
}

/** The first words of the line. They have the age of what the doctor found, because a younger fault is not in it. */
function verdict(status, seen) {
  if (status !== "UP") return "Not well:";
  if (!seen) return "The server is up:";
  const { urgent, noticed } = seen;
  const ago = `${span(performance.now() - seen.at)} ago`;
  if (!urgent && !noticed) return `The doctor found nothing wrong ${ago}:`;
  const count = urgent || noticed;
  return `The doctor ${urgent ? "warns" : "takes notice"} of ${count === 1 ? "one thing" : `${count} things`}, below, as of ${ago} ·`;
}

function partOf(name, part) {
  if (name === "disk" && part.status !== "UP" && "freeMb" in part) {
    return `the disk is too full: ${gigabytes(part.freeMb)} are free, the floor is ${gigabytes(part.floorMb)}`;
  }
  if (name === "worker" && part.state === "off") return ""; // a setting, and no fault
  if (part.status !== "UP") return `${name} DOWN${part.error ? `, ${part.error}` : ""}`;
  if (Object.keys(part).length === 1) return name; // the reasons are only sent to authorized clients
  if (name === "database") return `database ${part.answeredInMs ?? "?"} ms`;
  if (name === "worker") return `worker in this process ${part.state}${part.note ? `, ${part.note}` : ""}`;
  if (name === "listener") return part.state;
  if (name === "disk") return `disk ${gigabytes(part.freeMb)} free`;
  return name;
}

const gigabytes = (megabytes) => bytes(megabytes * 2 ** 20);

// --- jobs to try it with ------------------------------------------------------------------------------------------

const DEMOS = [
  ["demo.hello", "in a thread, done at once", { payload: { name: "Ana" } }],
  ["demo.sleep", "5 s on the event loop", { payload: { seconds: 5 } }],
  ["demo.crunch", "5 s of a core, in a child", { payload: { seconds: 5 } }],
  ["demo.fail", "fails once, then succeeds", { payload: { until: 2 } }],
  ["demo.fail", "fails for good", { payload: {}, maxAttempts: 1 }],
];

function tryIt(again) {
  const said = make("p", { className: "quiet", role: "status" });
  const buttons = DEMOS.map(([kind, words, more]) => {
    const element = button("", async () => {
      try {
        const made = await change("/internal/jobs", { kind, ...more });
        said.replaceChildren(`${kind}: `, link(`/ops/jobs/${made.id}`, `job ${made.id}`), made.note ? ` ${made.note}` : "");
        again();
      } catch (error) {
        put(said, `${kind} was not started: ${saidOf(error)}`);
      }
    });
    element.replaceChildren(make("b", { textContent: kind }), make("span", { textContent: words }));
    return element;
  });
  const lines = ["SELECT * FROM queue_overview;", `SELECT enqueue_job('demo.hello', ${literal('{"name": "Ana"}')});`, "snapapp jobs tail"];
  return panel(
    "Try it", { note: "the same in psql (`snapapp psql` opens it) and in a shell", className: "changes" },
    make("div", { className: "starters" }, ...buttons), said, make("div", { className: "three" }, ...lines.map(code)),
  );
}
