// Draws a workflow: jobs in columns, each to the right of the jobs that it waits for. A list beside it has the same
// jobs, for people who cannot see the drawing and for jobs that do not fit into it.

import { STATES, number } from "/static/ops/parts.js";
import { svg } from "/static/parts/page.js";

const WIDE = 150; // width of a job's box
const HIGH = 40;
const ACROSS = 46; // space between columns
const DOWN = 12;
const ROWS = 8; // boxes in a column; further jobs share one box
const LETTERS = 18;
// which jobs get a box of their own first
const FIRST = ["RUNNING", "FAILED", "CANCELLED", "RETRY_WAIT", "PENDING", null, "COMPLETED"];

/** Draws the graph around a job. `own` is the job whose page this is. */
export function graphOf({ nodes, edges }, own) {
  const columns = placed(nodes, edges, own);
  const high = Math.max(...columns.map((column) => column.length)) * (HIGH + DOWN) + DOWN;
  const wide = columns.length * (WIDE + ACROSS) - ACROSS + 4;
  const drawing = svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, class: "graph", role: "group" });
  drawing.setAttribute("aria-label", `Workflow of ${number(nodes.length)} jobs; below it is a list of this one's own`);
  const boxes = new Map();
  columns.forEach((column, across) => column.forEach((box, down) => {
    const top = (high - column.length * (HIGH + DOWN) + DOWN) / 2 + down * (HIGH + DOWN);
    Object.assign(box, { x: across * (WIDE + ACROSS) + 2, y: top });
    for (const { id } of box.jobs) boxes.set(id, box);
  }));
  drawing.append(...linesOf(edges, boxes), ...columns.flat().map((box) => boxOf(box, own)));
  return drawing;
}

/** The columns of boxes. A job is one column to the right of its last parent. Parents have lower ids, so they are
 *  placed before it. */
function placed(nodes, edges, own) {
  const parents = new Map(nodes.map(({ id }) => [id, []]));
  for (const { parent, child } of edges) parents.get(child).push(parent);
  const column = new Map();
  for (const { id } of nodes) column.set(id, Math.max(-1, ...parents.get(id).map((parent) => column.get(parent))) + 1);
  const columns = [];
  for (const node of nodes) (columns[column.get(node.id)] ??= []).push(node);
  // a job's height in its column, from 0 to 1: children are placed at the height of their parents
  const height = new Map();
  return columns.map((jobs) => {
    const wish = ({ id }) => parents.get(id).reduce((total, parent) => total + height.get(parent), 0) / (parents.get(id).length || 1);
    const ordered = [...jobs].sort((one, other) => wish(one) - wish(other) || one.id - other.id);
    ordered.forEach(({ id }, place) => height.set(id, (place + 0.5) / ordered.length));
    return folded(ordered, own);
  });
}

/** Merges the jobs that do not fit into a column into one box, completed jobs first. */
function folded(jobs, own) {
  if (jobs.length <= ROWS) return jobs.map((job) => ({ jobs: [job] }));
  const rank = (job) => (job.id === own ? -1 : FIRST.indexOf(job.status));
  const kept = new Set([...jobs].sort((one, other) => rank(one) - rank(other)).slice(0, ROWS - 1));
  return [...jobs.filter((job) => kept.has(job)).map((job) => ({ jobs: [job] })), { jobs: jobs.filter((job) => !kept.has(job)) }];
}

function linesOf(edges, boxes) {
  const drawn = new Map();
  for (const { parent, child, mustComplete } of edges) {
    const [from, to] = [boxes.get(parent), boxes.get(child)];
    const [x, y, right, down] = [from.x + WIDE, from.y + HIGH / 2, to.x, to.y + HIGH / 2];
    const bend = (right - x) / 2;
    const path = `M${x} ${y}C${x + bend} ${y} ${right - bend} ${down} ${right} ${down}`;
    drawn.set(path, svg("path", { d: path, class: mustComplete ? "must" : "may" }));
  }
  return drawn.values();
}

function boxOf({ jobs, x, y }, own) {
  const [job] = jobs;
  const isOne = jobs.length === 1;
  const box = svg(isOne && job.id !== own ? "a" : "g", isOne && job.id !== own ? { href: `/ops/jobs/${job.id}` } : {});
  box.classList.add("node");
  if (job.id === own && isOne) box.classList.add("own");
  box.dataset.state = isOne ? (job.status ?? "") : "";
  const [mark, word] = STATES[job.status] ?? ["?", "pruned"];
  const first = isOne ? `#${job.id} ${mark} ${word}` : `${number(jobs.length)} more`;
  const second = isOne ? (job.kind ?? "") : inWords(jobs);
  box.append(
    svg("title", {}, isOne ? `job ${job.id}, ${job.kind ?? "pruned"}, ${word}` : inWords(jobs)),
    svg("rect", { x, y, width: WIDE, height: HIGH, rx: 7 }),
    svg("text", { x: x + 10, y: y + 17 }, first),
    svg("text", { x: x + 10, y: y + 32, class: "quiet" }, second.length > LETTERS + 3 ? `${second.slice(0, LETTERS + 2)}…` : second),
  );
  return box;
}

function inWords(jobs) {
  const counts = new Map();
  for (const { status } of jobs) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([status, count]) => `${number(count)} ${STATES[status]?.[1] ?? "pruned"}`).join(", ");
}
