// The view of history: outcomes and durations of attempts over an hour, a day or a week, of one kind or all.

import { make, put } from "/static/parts/page.js";
import {
  ENDS, ask, endedSince, endedWithin, link, literal, loadPanels, number, panel, query, span, sum, table,
} from "/static/ops/parts.js";
import { clock, plot, plotBars, plotLines } from "/static/ops/plots.js";

const EVERY = 10_000; // ms between two looks
const JOBS_OF = { completed: "COMPLETED", failed: "FAILED", cancelled: "CANCELLED" };
const OVERS = { "1h": ["1 h", 3600], "24h": ["24 h", 86_400], "7d": ["7 d", 604_800] };
const INTERVALS = { "1h": "1 hour", "24h": "24 hours", "7d": "7 days" };

export function historyView({ query: asked, go }) {
  const over = OVERS[asked.get("over")] ? asked.get("over") : "1h";
  const kind = asked.get("kind") ?? "";
  const place = (changed) => `/ops/history${query({ over, kind, ...changed })}`;
  const spans = make(
    "nav", { className: "spans", ariaLabel: "How far back" },
    ...Object.entries(OVERS).map(([name, [words]]) => link(place({ over: name }), words, name === over ? { ariaCurrent: "page" } : {})),
  );
  const which = make("p", { className: "quiet" }, kind ? "Only " : "All kinds together. A kind below narrows the plots to itself.");
  if (kind) which.append(make("code", { textContent: kind }), ". ", link(place({ kind: "" }), "All kinds"));
  const rows = `SELECT * FROM job_history\n WHERE kind = ${literal(kind)} AND at > now() - interval '${INTERVALS[over]}' ORDER BY at;`;
  const ended = plot("Attempts that ended", { sql: rows });
  const waits = plot("Pickup: from due to begun", { sql: rows });
  const runs = plot("Run time", { sql: rows });
  const kinds = table(
    [["Kind"], ["Completed", "num"], ["Failed", "num"], ["Retried", "num"], ["Pickup p50", "num"], ["Pickup p95", "num"], ["Pickup p99", "num"],
      ["Run p50", "num"], ["Run p95", "num"], ["Run p99", "num"]],
    "No attempt ended within this time.",
  );
  const byKind = panel("By kind", { sql: `SELECT kind, sum(completed) AS completed, sum(failed) AS failed, sum(retried) AS retried\n  FROM job_history\n WHERE kind <> '' AND at > now() - interval '${INTERVALS[over]}' GROUP BY 1 ORDER BY 1;`, note: "as near as buckets tell: a fifth more or less" }, kinds.element);

  const steps = table(
    [["From"], ["Completed", "num"], ["Failed", "num"], ["Cancelled", "num"], ["Retried", "num"], ["Pickup p50", "num"], ["p95", "num"], ["p99", "num"],
      ["Run p50", "num"], ["p95", "num"], ["p99", "num"]],
    "No attempt ended within this time.",
  );
  const asTable = make("details", { className: "steps-table" }, make("summary", { textContent: "The plots as a table, with the jobs of each step" }), steps.element);
  const to = (at, step, name = "") => endedWithin(at, at + step, { kind, status: JOBS_OF[name] ?? "" });

  async function showPoints() {
    const { stepSeconds, items } = await ask(`/internal/history${query({ over, kind })}`);
    const frame = { items, step: stepSeconds * 1000, length: OVERS[over][1] * 1000, to, go };
    steps.fill([...items].reverse().map((its) => stepRow(its, frame)));
    plotBars(ended.chart, { ...frame, names: ENDS });
    plotLines(waits.chart, { ...frame, of: "wait", title: "pickup" });
    plotLines(runs.chart, { ...frame, of: "run", title: "run time" });
    ended.said.replaceChildren(...ENDS.map((name) => key(name, `${number(sum(items, name))} ${name}`)));
    for (const [its, of] of [[waits, "wait"], [runs, "run"]]) {
      const worst = items.filter((point) => point[of].p95 !== null).sort((one, other) => other[of].p95 - one[of].p95)[0];
      its.said.replaceChildren(
        key("p50", "p50: half of them took less"), key("p95", "p95: 19 of 20 took less"),
        worst ? `the worst p95 was ${span(worst[of].p95)}, at ${new Date(worst.at).toLocaleString([], { dateStyle: "short", timeStyle: "short" })}` : "nothing was measured",
      );
    }
    for (const its of [ended, waits, runs]) put(its.from, `${OVERS[over][0]} ago`);
  }

  async function showKinds() {
    const { items } = await ask(`/internal/history/kinds${query({ over })}`);
    kinds.fill(items.map((its) => {
      const jobs = (status) => endedSince(OVERS[over][1] * 1000, { kind: its.kind, status });
      return [
        link(place({ kind: its.kind }), its.kind), link(jobs("COMPLETED"), number(its.completed)), link(jobs("FAILED"), number(its.failed)),
        link(`/ops/jobs${query({ kind: its.kind, status: "RETRY_WAIT" })}`, number(its.retried)), ...[its.wait, its.run].flatMap(({ p50, p95, p99 }) => [p50, p95, p99].map(took)),
      ];
    }));
  }

  return {
    title: "History",
    every: EVERY,
    element: make(
      "div", {},
      make("div", { className: "title" }, make("h1", { textContent: "History" }), spans),
      which, ended.element, make("div", { className: "two even" }, waits.element, runs.element), asTable, byKind,
    ),
    refresh: () => loadPanels([[ended.element, showPoints], [byKind, showKinds]]),
  };
}

/** The values of the plots at one step. Retried attempts do not count as jobs,
 *  because their jobs may have ended since. */
function stepRow(its, { step, length, to }) {
  const at = Date.parse(its.at);
  const jobs = (name) => (its[name] ? link(to(at, step, name), number(its[name])) : "0");
  return [
    link(to(at, step), clock(at, length)), jobs("completed"), jobs("failed"), jobs("cancelled"), number(its.retried),
    ...[its.wait, its.run].flatMap(({ p50, p95, p99 }) => [p50, p95, p99].map(took)),
  ];
}

const took = (milliseconds) => (milliseconds === null ? "" : span(milliseconds));

const key = (name, words) => make("span", { className: `key ${name}`, textContent: words });
