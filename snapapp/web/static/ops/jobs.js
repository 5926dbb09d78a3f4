// The list of jobs, newest first, page by page. The filters are in the address.

import { make } from "/static/parts/page.js";
import {
  FINAL, STATES, ask, badge, button, changeButton, jobLink, learnTime, link, literal, now, number, panel, query, renew, span, table,
} from "/static/ops/parts.js";
import { many } from "/static/ops/many.js";

const EVERY = 3000; // ms between two looks
const PAGE = 50;
const FILTERS = ["status", "kind", "queue", "tenant", "error"];
const ENDED = ["finishedFrom", "finishedUntil"]; // filters without an input: links of numbers and plots set them

export function jobsView({ query: asked, again, go }) {
  const filter = Object.fromEntries(FILTERS.map((each) => [each, asked.get(each) ?? ""]));
  const errorLine = asked.get("errorLine");
  const before = asked.get("before");
  const ended = Object.fromEntries(ENDED.filter((each) => asked.get(each)).map((each) => [each, asked.get(each)]));
  const wanted = { ...filter, ...ended, ...(errorLine !== null && { errorLine }) };
  const jobs = table(
    [["Job"], ["State"], ["Kind"], ["Queue"], ["What it says", "wide"], ["Try", "num"], ["Time", "num"]],
    "No job matches.",
  );
  const further = make("div", { className: "further" });
  const list = panel(before ? `Jobs before #${before}` : "Jobs, newest first", { sql: () => statement(wanted, before) }, jobs.element, further);
  const form = filters(filter, errorLine, ended, (chosen) => go(`/ops/jobs${address(chosen)}`));
  form.querySelector(".acts").append(...bulk(wanted, again));

  return {
    title: "Jobs",
    every: EVERY,
    stream: before ? null : query({ kind: filter.kind, queue: filter.queue, tenant: filter.tenant }),
    element: make("div", {}, make("h1", { className: "unseen", textContent: "Jobs" }), form, list),
    async refresh() {
      const page = await ask(`/internal/jobs${address({ ...wanted, before, limit: PAGE })}`);
      learnTime(page.now);
      jobs.fill(page.items.map(jobRow));
      renew(further, onwards(page, wanted, before));
    },
  };
}

/** The query of the filters. `errorLine` may be empty: dead letters without a recorded error are a group of their
 *  own. */
function address({ errorLine, ...others }) {
  const given = query(others);
  if (errorLine === undefined || errorLine === null) return given;
  return `${given || "?"}${given ? "&" : ""}${new URLSearchParams({ errorLine })}`;
}

function onwards(page, wanted, before) {
  const parts = [];
  if (before) parts.push(link(`/ops/jobs${address(wanted)}`, "← Newest"));
  if (page.next) parts.push(link(`/ops/jobs${address({ ...wanted, before: page.next })}`, "Older →"));
  if (page.next && page.items.length < PAGE) {
    parts.push(make("span", { className: "quiet", textContent: `Looked through as many jobs as one page may, down to #${page.next}; there may be more.` }));
  }
  return parts;
}

// --- filters ------------------------------------------------------------------------------------------------------

function filters(filter, errorLine, ended, choose) {
  const status = make("select", { name: "status" }, make("option", { value: "", textContent: "any state" }));
  for (const [value, [, word]] of Object.entries(STATES)) status.append(make("option", { value, textContent: word }));
  status.value = filter.status;
  const fields = ["kind", "queue", "tenant", "error"].map((name) =>
    labelled(name === "error" ? "Error holds" : name[0].toUpperCase() + name.slice(1),
      make("input", { name, value: filter[name], maxLength: 200, autocomplete: "off", spellcheck: false }), name === "error" ? "grow" : ""));
  const form = make(
    "form", { className: "filters", role: "search", ariaLabel: "Which jobs" },
    labelled("State", status), ...fields,
    make("div", { className: "acts" }, make("button", { type: "submit", className: "primary", textContent: "Show" })),
  );
  const line = errorLine === null ? {} : { errorLine };
  const chip = (words, without, rest) => form.prepend(
    make("p", { className: "chip" }, `${words} `, button("✕", () => choose({ ...read(form), ...rest }), { ariaLabel: without })),
  );
  if (errorLine !== null) chip(`The error begins with exactly: ${errorLine || "(nothing)"}`, "Any error", ended);
  if (Object.keys(ended).length) chip(endedInWords(ended), "Whenever they ended", line);
  const chosen = () => ({ ...read(form), ...ended, ...line });
  status.addEventListener("change", () => choose(chosen()));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    choose(chosen());
  });
  return form;
}

function endedInWords({ finishedFrom, finishedUntil }) {
  const clock = (text) => (Number.isNaN(Date.parse(text)) ? text : new Date(text).toLocaleString([], { dateStyle: "short", timeStyle: "short" }));
  return `They ended${finishedFrom ? ` from ${clock(finishedFrom)}` : ""}${finishedUntil ? ` until ${clock(finishedUntil)}` : ""}`;
}

const read = (form) => Object.fromEntries(FILTERS.map((each) => [each, form.elements[each].value.trim()]));
const labelled = (text, element, className = "") => make("label", { className }, make("span", { textContent: text }), element);

// --- many at once: of those that failed ---------------------------------------------------------------------------

function bulk({ status, ...wanted }, again) {
  if (status !== "FAILED") return [];
  const given = Object.fromEntries(Object.entries(wanted).filter(([name, value]) => value !== "" || name === "errorLine"));
  const isNarrow = Object.keys(given).length > 0;
  const filter = isNarrow ? given : { all: true };
  const words = isNarrow ? Object.entries(given).map(([name, value]) => `${name}: ${value}`).join(" · ") : "All that failed, of every kind and queue.";
  return [
    changeButton("Retry them …", () => many("retry", filter, words, again)),
    changeButton("Discard them …", () => many("discard", filter, words, again)),
  ];
}

// --- a line -------------------------------------------------------------------------------------------------------

function jobRow(job) {
  const percent = percentOf(job);
  const says = make("span", { className: "says" });
  if (percent !== null) says.append(make("progress", { max: 100, value: percent, ariaLabel: `progress of job ${job.id}` }));
  says.append(make("span", { textContent: noteOf(job, percent) }));
  return [
    jobLink(job.id), badge(job.status, job.status === "RUNNING" && job.cancelRequestedAt ? "stopping" : undefined),
    make("code", { textContent: job.kind }), job.queue, says,
    make("span", { textContent: `${job.attemptCount}/${job.maxAttempts}`, title: `attempt ${job.attemptCount} of at most ${job.maxAttempts}` }),
    timeOf(job),
  ];
}

export function percentOf(job) {
  const percent = job.status === "RUNNING" ? job.progress?.percent : undefined;
  return typeof percent === "number" ? Math.min(100, Math.max(0, percent)) : null;
}

export function noteOf(job, percent = percentOf(job)) {
  if (job.status === "RUNNING") {
    const said = typeof job.progress?.note === "string" ? job.progress.note : "";
    return percent === null ? said : `${Math.round(percent)} % ${said}`.trim();
  }
  if (job.status === "COMPLETED" || job.lastError === null) return "";
  return job.lastError.split("\n", 1)[0];
}

function timeOf(job) {
  if (FINAL.has(job.status)) {
    return job.startedAt && job.finishedAt ? `took ${span(Date.parse(job.finishedAt) - Date.parse(job.startedAt))}` : "";
  }
  if (job.status === "RUNNING") return job.startedAt ? `for ${span(now() - Date.parse(job.startedAt))}` : "claimed";
  if (job.waitsFor) return `after ${number(job.waitsFor)} ${job.waitsFor === 1 ? "job" : "jobs"}`;
  const left = Date.parse(job.nextRetryAt) - now();
  return left > 0 ? `in ${span(left)}` : `due ${span(-left)}`;
}

// --- the same in psql ---------------------------------------------------------------------------------------------

function statement(wanted, before) {
  const conditions = ["status", "kind", "queue", "tenant"].filter((each) => wanted[each]).map((each) => `${each} = ${literal(wanted[each])}`);
  if (wanted.error) conditions.push(`position(lower(${literal(wanted.error)}) IN lower(last_error)) > 0`);
  if (wanted.errorLine !== undefined) conditions.push(`job_error_line(last_error) = ${literal(wanted.errorLine)}`);
  if (wanted.finishedFrom) conditions.push(`finished_at >= ${literal(wanted.finishedFrom)}`);
  if (wanted.finishedUntil) conditions.push(`finished_at < ${literal(wanted.finishedUntil)}`);
  if (before) conditions.push(`id < ${Number(before)}`);
  const where = conditions.length ? `\n WHERE ${conditions.join("\n   AND ")}` : "";
  return `SELECT id, status, kind, queue, attempt_count, last_error\n  FROM snap_processing_job${where}\n ORDER BY id DESC LIMIT ${PAGE};`;
}
