// The view of one job: an explanation of its state, its attempts, its log, its relatives, and its actions.

import { code } from "/static/parts/code.js";
import { make, put } from "/static/parts/page.js";
import {
  FINAL, ask, badge, change, changeButton, folded, jobLink, link, linked, loadPanels, moment, now, number, panel, query,
  renew, renewAroundFolds, span, sure, table,
} from "/static/ops/parts.js";
import { graphOf } from "/static/ops/graph.js";
import { deedRow } from "/static/ops/audit.js";
import { noteOf, percentOf } from "/static/ops/jobs.js";

const EVERY = 3000; // ms between two looks

const FAMILY_SQL = (id) => `SELECT its.*, job.kind, job.status
  FROM job_parent AS its
  JOIN snap_processing_job AS job ON job.id = CASE WHEN its.job_id = ${id} THEN its.parent_id ELSE its.job_id END
 WHERE ${id} IN (its.job_id, its.parent_id);`;

export function jobView({ parts: [id], again, go }) {
  const title = make("h1", { textContent: `Job ${id}` });
  const state = make("span");
  const actions = make("div", { className: "actions" });
  const gone = make("p", { className: "none", hidden: true });
  const explain = make("p", { className: "explain", hidden: true });
  const progress = make("div", { className: "progress", hidden: true });
  const steps = make("ol", { className: "steps" });
  const facts = make("dl");
  const values = make("div");
  const said = make("ol", { className: "log" });
  const drawing = make("div", { className: "drawing" });
  const relatives = make("div");
  const deeds = table([["When", "when"], ["Who"], ["What"], ["To what"], ["Jobs", "num"], ["Said", "wide"]], "Nobody has done anything to it.");
  const timeline = panel("What became of it", {}, steps);
  const log = panel("What it said last", {}, said);
  const family = panel("Workflow", { sql: FAMILY_SQL(id), note: "what it waits for is to the left of it" }, drawing, relatives);
  const audit = panel("Audit", {}, deeds.element);
  const body = make(
    "div", { className: "job", hidden: true },
    make("div", {}, explain, progress, family, timeline, log, panel("What it was given, and what it returned", {}, values)),
    make("div", {}, panel("Facts", { sql: `SELECT * FROM snap_processing_job WHERE id = ${id} \\gx` }, facts),
      panel("The same in a shell", {}, code(`snapapp jobs show ${id}`))),
    audit,
  );

  async function showJob() {
    const job = await ask(`/internal/jobs/${id}`).catch((error) => {
      if (error.status !== 404) throw error;
      return null;
    });
    gone.hidden = job !== null;
    body.hidden = job === null;
    actions.hidden = job === null;
    put(gone, job === null ? `There is no job ${id}: it may have been pruned.` : "");
    if (!job) return put(title, `Job ${id}`);
    put(title, `Job ${job.id} · ${job.kind}`);
    state.replaceChildren(badge(job.status, job.status === "RUNNING" && job.cancelRequestedAt ? "stopping" : undefined));
    fillActions(actions, job, again, go);
    explain.hidden = !job.explain;
    renew(explain, linked(job.explain ?? ""));
    showProgress(progress, job);
    renewAroundFolds(steps, stepsOf(job));
    renew(facts, factsOf(job));
    renewAroundFolds(values, valuesOf(job));
    log.hidden = job.logs.length === 0;
    renewAroundFolds(said, job.logs.map(lineOf));
  }

  async function showFamily() {
    const { parents, children } = await ask(`/internal/jobs/${id}/family`);
    family.hidden = parents.length + children.length === 0;
    if (!family.hidden) {
      const graph = await ask(`/internal/jobs/${id}/graph`);
      const more = make("p", { className: "quiet", textContent: "The nearest are drawn; there are others.", hidden: !graph.more });
      renew(drawing, [graphOf(graph, Number(id)), more]);
    }
    renew(relatives, [...relativesOf("It waits for", parents), ...relativesOf("Wait for it", children)]);
  }

  const showAudit = async () => deeds.fill((await ask(`/internal/audit${query({ subject: `job ${id}`, limit: 20 })}`)).items.map(deedRow));

  return {
    title: `Job ${id}`,
    every: EVERY,
    stream: `?id=${id}`,
    element: make("div", {}, make("div", { className: "title" }, title, state, actions), gone, body),
    refresh: () => loadPanels([[timeline, showJob], [family, showFamily], [audit, showAudit]]),
  };
}

// --- actions -------------------------------------------------------------------------------------------------------

function fillActions(actions, job, again, go) {
  const act = (verb, text, options = {}) =>
    changeButton(`${verb} …`, () =>
      sure({
        title: `${verb} ${options.path ? "of " : ""}job ${job.id}`, text, yes: options.path ? verb : `${verb} the job`,
        act: (reason) => change(`/internal/jobs/${job.id}/${(options.path ?? verb).toLowerCase()}`, options.reason ? { reason } : undefined),
        done: (answer) => {
          if (options.path === "replay") go(`/ops/jobs/${answer.id}`);
          else again();
        },
        ...options,
      }), options.danger ? {} : { className: options.primary ? "primary" : "" });
  const isOver = job.status === "FAILED" || job.status === "CANCELLED";
  const waits = job.status === "PENDING" || job.status === "RETRY_WAIT";
  const can = [];
  if (isOver) can.push(act("Retry", "It runs again, counting its attempts from zero.", { primary: true }));
  if (waits && !job.waitsFor && Date.parse(job.nextRetryAt) > now()) {
    can.push(act("Run now", "It is due at once, and runs as soon as limits, pauses and free slots allow.", {
      path: "now", title: `Run job ${job.id} now`, yes: "Run it now",
    }));
  }
  if (!FINAL.has(job.status)) {
    const isHung = job.explain?.includes("ignores its deadline");
    const stops = isHung ? "Its thread ignores its deadline, so it ends only with its worker." : "It is asked to stop; a completion that arrives first wins.";
    const asks = job.status === "RUNNING" ? stops : "It ends at once, and never runs.";
    can.push(act("Cancel", asks, { danger: true }));
  }
  if (waits || job.status === "FAILED") {
    can.push(act("Discard", "Nobody wants it any more: it becomes CANCELLED, with the reason as its last error.", { danger: true, reason: true }));
  }
  can.push(act("Run a copy", "A new job with the same payload; this one stays as it is.", { path: "replay" }));
  renew(actions, can);
}

// --- attempts ------------------------------------------------------------------------------------------------------

function showProgress(element, job) {
  const percent = percentOf(job);
  element.hidden = job.status !== "RUNNING" || (percent === null && !noteOf(job));
  if (element.hidden) return;
  element.replaceChildren(
    percent === null ? "" : make("progress", { max: 100, value: percent, ariaLabel: "progress" }),
    make("span", { textContent: noteOf(job, percent) }),
  );
}

/** The history of a job in the order of time: its creation, each known attempt, and its present state. */
function stepsOf(job) {
  const steps = [step("PENDING", "created", job.createdAt)];
  for (const attempt of attemptsOf(job)) steps.push(attemptStep(attempt));
  if (FINAL.has(job.status)) steps.push(step(job.status, job.status.toLowerCase(), job.finishedAt));
  else if (job.status === "RUNNING") steps.push(step("RUNNING", `attempt ${job.attemptCount} runs`, job.startedAt));
  else steps.push(step(job.status, job.waitsFor ? "waits for others" : "may run", job.nextRetryAt));
  return steps;
}

function attemptsOf(job) {
  const known = new Map();
  const of = (number) => known.get(number) ?? known.set(number, { number }).get(number);
  for (const cost of job.costs) of(cost.attempt).cost = cost;
  for (const error of Array.isArray(job.errors) ? job.errors : []) (of(error.attempt).errors ??= []).push(error);
  return [...known.values()].sort((one, other) => one.number - other.number);
}

function attemptStep({ number: attempt, cost, errors = [] }) {
  const outcome = cost?.outcome ?? (errors.length ? "RETRY_WAIT" : "RUNNING");
  const item = step(outcome, `attempt ${attempt}`, cost?.startedAt ?? errors[0]?.at);
  if (cost) {
    const parts = [`ran ${span(cost.wallMs)}`];
    if (cost.waitMs !== null) parts.push(`waited ${span(cost.waitMs)}`);
    if (cost.cpuMs !== null) parts.push(`${span(cost.cpuMs)} of a core`);
    if (cost.peakMb !== null) parts.push(`${number(Math.round(cost.peakMb))} MB at most`);
    item.append(make("p", { className: "quiet", textContent: parts.join(" · ") }));
  }
  for (const error of errors) {
    if (!error.trace) {
      item.append(make("p", { className: "wrong", textContent: String(error.error) }));
      continue;
    }
    const fold = folded(String(error.error), String(error.trace));
    fold.classList.add("wrong");
    fold.dataset.key = `${attempt} ${error.error}`;
    item.append(fold);
  }
  return item;
}

function step(status, words, at) {
  const item = make("li", {}, make("p", {}, make("b", { textContent: words }), " ", moment(at)));
  item.dataset.state = status;
  return item;
}

// --- facts ---------------------------------------------------------------------------------------------------------

function factsOf(job) {
  const list = [];
  const add = (name, value) => {
    if (value === null || value === undefined || value === "" || value === false) return;
    list.push(make("dt", { textContent: name }), make("dd", {}, value === true ? "yes" : value));
  };
  const jobsOf = (values, text) => link(`/ops/jobs${query(values)}`, text);
  add("kind", jobsOf({ kind: job.kind }, job.kind));
  add("queue", jobsOf({ queue: job.queue }, job.queue));
  add("tenant", job.tenant && jobsOf({ tenant: job.tenant }, job.tenant));
  add("priority", job.priority ? String(job.priority) : null);
  add("attempt", `${job.attemptCount} of at most ${job.maxAttempts}`);
  add("waited", typeof job.waitedMs === "number" ? span(job.waitedMs) : null);
  add("ran", typeof job.ranMs === "number" ? span(job.ranMs) : null);
  add("heartbeat", moment(job.lockedAt));
  add("lease ends", moment(job.lockExpiresAt));
  add("asked to stop", moment(job.cancelRequestedAt));
  add("interruptions", job.interruptions ? String(job.interruptions) : null);
  add("lost workers", job.losses ? String(job.losses) : null);
  add("suspect", job.suspect);
  add("time limit", job.timeoutMs === null ? null : span(job.timeoutMs));
  add("memory limit", job.memoryMb === null ? null : `${number(job.memoryMb)} MB`);
  add("unique key", job.uniqueKey && `${job.uniqueKey} (${job.uniqueScope})`);
  add("concurrency key", job.concurrencyKey);
  add("request", job.requestId);
  add("trace", job.traceparent && job.traceparent.split("-")[1]);
  add("copy of", job.replayOf && jobLink(job.replayOf));
  return list;
}

function valuesOf(job) {
  const text = (value) => JSON.stringify(value, null, 2);
  const short = (value) => text(value).length < 300;
  const parts = [folded("Payload", text(job.payload), { open: short(job.payload) })];
  if (job.result !== null) parts.push(folded("Result", text(job.result), { open: short(job.result) }));
  return parts;
}

function lineOf(said) {
  return make(
    "li", { className: said.level.toLowerCase() },
    make("time", { dateTime: said.at, textContent: new Date(said.at).toLocaleTimeString() }),
    make("span", { className: "level", textContent: said.level.toLowerCase() }),
    make("span", { textContent: said.message }),
  );
}

function relativesOf(title, relatives) {
  if (!relatives.length) return [];
  const lines = relatives.map((its) =>
    make("li", {}, jobLink(its.id), " ", its.status ? badge(its.status) : "pruned", " ", its.kind ?? "",
      make("span", { className: "quiet", textContent: its.mustComplete ? "" : " (may fail)" })));
  return [make("h3", { textContent: title }), make("ul", { className: "relatives" }, ...lines)];
}
