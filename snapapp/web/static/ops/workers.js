// The view of workers and pools: what each works on, its memory, and how former workers ended.

import { make } from "/static/parts/page.js";
import { ask, badge, jobLink, link, loadPanels, moment, number, panel, query, span, table } from "/static/ops/parts.js";

const EVERY = 3000; // ms between two looks
const SHOWN = 8; // jobs of a worker that are shown
const STATES = { ACTIVE: "COMPLETED", DRAINING: "RETRY_WAIT", LOST: "FAILED", PAUSED: "RETRY_WAIT", STOPPING: "RETRY_WAIT", DRAINED: "CANCELLED" };

export function workersView() {
  const workers = table(
    [["Worker"], ["State"], ["Jobs in hand", "wide"], ["Busy", "num"], ["Memory", "num"], ["Done", "num"], ["Failed", "num"], ["Up", "num"], ["Beat", "num"]],
    "No worker is on the roster: nothing runs.",
  );
  const pools = table(
    [["Pool"], ["State"], ["Queues", "wide"], ["Balance"], ["Processes", "num"], ["Running", "num"], ["Memory", "num"], ["Note", "wide"]],
    "No supervisor is at work: snapapp supervisor keeps worker processes running.",
  );
  const decisions = table([["When", "when"], ["Pool"], ["Processes", "num"], ["Why", "wide"]], "No pool was scaled.");
  const exits = table([["When", "when"], ["Worker"], ["Why it ended", "wide"], ["Done", "num"], ["Failed", "num"], ["Lived", "num"]], "No worker has ended yet.");
  const here = panel("Workers", { sql: "SELECT * FROM worker_overview;" }, workers.element);
  const fleet = panel("Pools", { sql: "SELECT * FROM fleet_overview;" }, pools.element);
  const scaled = panel("Why pools were scaled", { sql: "SELECT * FROM job_scaling ORDER BY id DESC LIMIT 20;" }, decisions.element);
  const gone = panel("How workers ended", { sql: "SELECT * FROM job_worker_exit ORDER BY id DESC LIMIT 20;" }, exits.element);
  const fill = (its, path, rowOf) => async () => its.fill((await ask(path)).items.map(rowOf));
  return {
    title: "Workers",
    every: EVERY,
    element: make("div", {}, make("h1", { className: "unseen", textContent: "Workers" }), here, fleet, scaled, gone),
    refresh: () => loadPanels([
      [here, fill(workers, "/internal/workers", workerRow)],
      [fleet, fill(pools, "/internal/fleet", poolRow)],
      [scaled, fill(decisions, "/internal/fleet/decisions?limit=20", decisionRow)],
      [gone, fill(exits, "/internal/workers/exits?limit=20", exitRow)],
    ]),
  };
}

function workerRow(its) {
  const name = make("span", { title: its.id }, make("b", { textContent: its.name }),
    make("span", { className: "quiet", textContent: ` ${its.host}, pid ${its.pid}${its.pool ? `, pool ${its.pool}` : ""}` }));
  const jobs = make("span", { className: "jobs-in-hand" }, ...its.currentJobs.slice(0, SHOWN).map(jobLink));
  if (its.currentJobs.length > SHOWN) jobs.append(" and ", link(`/ops/jobs${query({ status: "RUNNING" })}`, `${its.currentJobs.length - SHOWN} more`));
  if (its.note) jobs.append(make("span", { className: "quiet", textContent: its.note }));
  const state = badge(STATES[its.status], its.status.toLowerCase());
  return [
    name, state, jobs,
    `${its.currentJobs.length}/${its.slots}`, `${number(its.memoryMb)} MB`, number(its.jobsCompleted), number(its.jobsFailed),
    span(its.upForSeconds * 1000), `${span(its.lastBeatSeconds * 1000)} ago`,
  ];
}

function poolRow(its) {
  const processes = its.wanted === null ? "" : `${its.present} of ${its.wanted}${its.leaving ? `, ${its.leaving} leaving` : ""}`;
  const state = its.master === "ACTIVE" ? (its.state ?? its.master) : its.master;
  return [
    `${its.pool ?? "no pool yet"} on ${its.host}`, badge(STATES[state], state.toLowerCase()), its.queues?.join(", ") || "all",
    its.fixedAt === null ? (its.balance ?? "") : `fixed at ${its.fixedAt}`, processes, `${its.running}/${its.slots}`, `${number(its.memoryMb)} MB`,
    [its.stateReason, its.note].filter(Boolean).join("; "),
  ];
}

const decisionRow = (its) => [moment(its.at), `${its.pool} on ${its.host}`, `${its.present} → ${its.wanted}`, its.reason];

function exitRow(its) {
  const lived = span(Date.parse(its.exitedAt) - Date.parse(its.startedAt));
  return [moment(its.exitedAt), `${its.name} (${its.host}, pid ${its.pid})`, its.reason, number(its.jobsCompleted), number(its.jobsFailed), lived];
}
