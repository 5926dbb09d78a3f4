// The view of queues, each with its switch for pausing, and of the limits.

import { make } from "/static/parts/page.js";
import {
  HOUR, ask, counted, endedSince, link, loadPanels, number, panel, pauseSwitch, paused, query, span, sum, table,
} from "/static/ops/parts.js";

const HOUR_SQL = `SELECT kind, sum(completed) AS completed, sum(failed) AS failed, sum(cancelled) AS cancelled, sum(retried) AS retried
  FROM job_history WHERE kind <> '' AND at > now() - interval '1 hour' GROUP BY 1 ORDER BY 1;
SELECT * FROM kind_costs;  -- percentiles of the newest 1,000 of each kind`;
const EVERY = 3000; // ms between two looks
const SWITCH = {
  noun: "the queue",
  pause: "No worker claims from it until it is resumed. What runs goes on.",
  resume: "Workers claim from it again.",
};

export const DEPTH_SQL = `SELECT * FROM queue_overview;
SELECT id, queue, kind, next_retry_at FROM snap_processing_job  -- those that are due
 WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate <> 'after' AND next_retry_at <= now() ORDER BY next_retry_at LIMIT 50;`;
const LIMITS_SQL = `SELECT * FROM limit_overview;
SELECT ruling.key_pattern, its.key, count(*) AS running, ruling.max_running FROM snap_processing_job AS job  -- by key
 CROSS JOIN LATERAL (VALUES ('queue:' || job.queue), ('kind:' || job.kind), ('key:' || nullif(job.lane, ''))) AS its (key)
 CROSS JOIN LATERAL job_limit_of(its.key) AS ruling
 WHERE job.status = 'RUNNING' AND job.gate = 'held' GROUP BY 1, 2, 4 ORDER BY 3 DESC LIMIT 50;`;

export const QUEUE_COLUMNS = [
  ["Queue"], ["Pending", "num"], ["Retry wait", "num"], ["Due", "num"], ["Running", "num"], ["Failed", "num"], ["Oldest due", "num"],
  ["", "acts"],
];

export function queuesView({ again }) {
  const queues = table(
    QUEUE_COLUMNS,
    "Nothing waits, runs or failed, and no queue is paused.",
  );
  const limits = table(
    [["Limit"], ["At once", "num"], ["A second", "num"], ["Burst", "num"], ["Running", "num"], ["Keys", "num"], ["Full", "num"]],
    "There is no limit: snapapp limits set makes one.",
  );
  const depth = panel("Queues", { sql: DEPTH_SQL }, queues.element);
  const pace = lastHour("The last hour, by kind");
  const rules = panel("Limits", { sql: LIMITS_SQL }, limits.element);

  const showQueues = async () => {
    const { items } = await ask("/internal/queues");
    queues.fill(items.map((its) => queueRow(its, sum(items, "running"), sum(items, "failed"), again)));
  };
  const showLimits = async () => {
    const { items } = await ask("/internal/limits");
    limits.fill(items.map(limitRow));
  };
  return {
    title: "Queues",
    every: EVERY,
    element: make("div", {}, make("h1", { textContent: "Queues and limits" }), depth, pace.element, rules),
    refresh: () => loadPanels([[depth, showQueues], [pace.element, pace.show], [rules, showLimits]]),
  };
}

/** The panel of what each kind did in the last hour, and the function that asks for it. */
export function lastHour(title) {
  const kinds = table(
    [["Kind"], ["Completed", "num"], ["Failed", "num"], ["Cancelled", "num"], ["Repeated", "num"], ["Pickup p50", "num"], ["Pickup p99", "num"], ["Run p50", "num"], ["Run p99", "num"]],
    "No attempt ended within the last hour.",
  );
  const element = panel(title, { sql: HOUR_SQL, note: "as near as buckets tell: a fifth more or less" }, kinds.element);
  return { element, show: async () => kinds.fill((await ask("/internal/history/kinds?over=1h")).items.map(kindRow)) };
}

function kindRow(its) {
  const plots = `/ops/history${query({ kind: its.kind })}`;
  const ended = (status, count) => link(endedSince(HOUR, { kind: its.kind, status }), number(count));
  return [
    link(plots, its.kind), ended("COMPLETED", its.completed), ended("FAILED", its.failed), ended("CANCELLED", its.cancelled),
    link(`/ops/jobs${query({ status: "RETRY_WAIT", kind: its.kind })}`, number(its.retried)),
    ...[its.wait.p50, its.wait.p99, its.run.p50, its.run.p99].map((took) => (took === null ? "" : link(plots, span(took)))),
  ];
}

function limitRow(its) {
  const full = its.keysFull ? make("b", { className: "bad", textContent: number(its.keysFull) }) : "0";
  const [sort, name] = [its.keyPattern.slice(0, its.keyPattern.indexOf(":")), its.keyPattern.slice(its.keyPattern.indexOf(":") + 1)];
  // there is no list of jobs by concurrency key
  const isOne = (sort === "queue" || sort === "kind") && !name.endsWith("*");
  const running = isOne ? link(`/ops/jobs${query({ [sort]: name, status: "RUNNING" })}`, number(its.running)) : number(its.running);
  return [its.keyPattern, ...[its.maxRunning, its.rate, its.burst].map((value) => (value === null ? "" : number(value))), running, number(its.keysRunning), full];
}

export function queueRow(its, running, failed, again) {
  const waits = its.pending + its.retryWait;
  const toJobs = (status, text) => link(`/ops/jobs${query({ queue: its.queue, status })}`, text);
  return [
    queueLink(its),
    toJobs("PENDING", counted(its.pending, waits)),
    toJobs("RETRY_WAIT", counted(its.retryWait, waits)),
    counted(its.due),
    toJobs("RUNNING", counted(its.running, running)),
    toJobs("FAILED", counted(its.failed, failed)),
    its.oldestId ? link(`/ops/jobs/${its.oldestId}`, span(its.oldestDueSeconds * 1000)) : "",
    pauseSwitch(its, { name: its.queue, path: pathOf(its.queue), ...SWITCH, again }),
  ];
}

export const pathOf = (queue) => `/internal/queues/${encodeURIComponent(queue).replaceAll("%2F", "/")}`;

function queueLink(its) {
  const name = link(`/ops/jobs${query({ queue: its.queue })}`, its.queue);
  if (!its.pausedAt) return name;
  return make("span", {}, name, " ", paused(its), its.pausedReason ? make("span", { className: "quiet", textContent: ` ${its.pausedReason}` }) : "");
}
