// The view of costs: waiting time, duration, processor time and memory of attempts, by kind.

import { make } from "/static/parts/page.js";
import { ask, endedWithin, link, loadPanels, moment, now, number, panel, query, span, table } from "/static/ops/parts.js";

const EVERY = 10_000; // ms between two looks

export function costsView() {
  const kinds = table(
    [["Kind"], ["Attempts", "num"], ["Since", "num"], ["Waited p50", "num"], ["p99", "num"], ["Ran p50", "num"], ["p99", "num"],
      ["Processor p50", "num"], ["p99", "num"], ["Memory p50", "num"], ["p99", "num"]],
    "No attempt has run yet.",
  );
  const costs = panel(
    "What an attempt of each kind costs",
    { sql: "SELECT * FROM kind_costs;", note: "of the newest 1,000 that were written down: half stay below p50, 99 of 100 below p99" }, kinds.element,
  );
  return {
    title: "Costs",
    every: EVERY,
    element: make("div", {}, make("h1", { textContent: "Costs by kind" }), costs),
    refresh: () => loadPanels([[costs, async () => kinds.fill((await ask("/internal/costs")).items.map(kindRow))]]),
  };
}

function kindRow(its) {
  const plots = `/ops/history${query({ kind: its.kind })}`;
  const time = (milliseconds) => (milliseconds === null ? "" : link(plots, span(milliseconds)));
  const memory = (megabytes) => (megabytes === null ? "" : `${number(Math.round(megabytes))} MB`);
  return [
    link(plots, its.kind),
    link(endedWithin(Date.parse(its.since), now() + 60_000, { kind: its.kind }), number(its.attempts)), moment(its.since),
    ...[its.waitP50Ms, its.waitP99Ms, its.wallP50Ms, its.wallP99Ms, its.cpuP50Ms, its.cpuP99Ms].map(time), memory(its.peakP50Mb), memory(its.peakP99Mb),
  ];
}
