// The plots of /ops: stacked bars, and lines of percentiles. The SVG is drawn here, because a library would be ten
// times as long as this.

import { number, panel, span } from "/static/ops/parts.js";
import { make, svg } from "/static/parts/page.js";

const WIDE = 600;
const HIGH = 110;
const TOP = 6;

/** A panel with an empty plot; `said` is the paragraph below it. */
export function plot(title, facts, said = make("p", { className: "quiet keys" })) {
  const chart = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img" });
  const from = make("span");
  chart.highest = make("span");
  const axis = make("p", { className: "axis quiet" }, from, chart.highest, make("span", { textContent: "now" }));
  return { chart, from, said, element: panel(title, facts, chart, axis, said) };
}

/** The time of a step of a plot of this length. */
export const clock = (at, length) => new Date(at).toLocaleString([], length > 3_600_000 ? { dateStyle: "short", timeStyle: "short" } : { timeStyle: "short" });

/** The horizontal position of a point; the newest step is at the right edge. */
function places({ items, step, length }) {
  const end = (Math.floor(Date.now() / step) + 1) * step;
  const wide = WIDE / (length / step);
  return items
    .map((its) => ({ its, x: WIDE - ((end - Date.parse(its.at)) / step) * wide, wide }))
    .filter(({ x }) => x > -wide && x < WIDE);
}

/** Makes a part of a plot clickable. People without a pointer find the same numbers in a table. */
function leads(element, href, go) {
  element.classList.add("leads");
  element.addEventListener("click", () => go(href));
}

/** Draws stacked bars. `to` gives the address of a step or of a part of it; `go` navigates to it. */
export function plotBars(chart, frame) {
  const { items, names, length, step, to, go } = frame;
  const highest = Math.max(1, ...items.map((its) => names.reduce((total, name) => total + its[name], 0)));
  const parts = [];
  for (const { its, x, wide } of places(frame)) {
    let top = HIGH;
    const bar = svg("g", {});
    bar.append(svg("title", {}, `${clock(its.at, length)}: ${names.map((name) => `${number(its[name])} ${name}`).join(", ")}`));
    for (const name of names) {
      if (!its[name]) continue;
      const height = Math.max(1.5, (its[name] / highest) * (HIGH - TOP));
      top -= height;
      const part = svg("rect", { x: x + wide * 0.1, y: top, width: wide * 0.8, height, class: name });
      leads(part, to(Date.parse(its.at), step, name), go);
      bar.append(part);
    }
    parts.push(bar);
  }
  chart.replaceChildren(...parts);
  chart.highest.textContent = `the highest is ${number(highest)}`;
  chart.setAttribute("aria-label", `Attempts that ended, step by step; the most in one: ${number(highest)}`);
}

/** Draws p50 and p95 on a logarithmic scale. Steps without a value leave a gap in the line. */
export function plotLines(chart, { of, title, ...frame }) {
  const measured = { ...frame, items: frame.items.filter((its) => its[of].p95 !== null) };
  const values = measured.items.flatMap((its) => [its[of].p50, its[of].p95]).map((value) => Math.max(0.1, value));
  const least = Math.log((values.length ? Math.min(...values) : 1) / 1.5);
  const most = Math.log(Math.max(...values, 1) * 1.2);
  const y = (value) => HIGH - ((Math.log(Math.max(0.1, value)) - least) / (most - least)) * (HIGH - TOP);
  const points = places(measured);
  const parts = [];
  for (const name of ["p50", "p95"]) {
    let path = "";
    points.forEach(({ its, x, wide }, place) => {
      const isNext = place > 0 && x - points[place - 1].x < 1.5 * wide;
      path += `${isNext ? "L" : "M"}${(x + wide / 2).toFixed(1)} ${y(its[of][name]).toFixed(1)}${isNext ? "" : "h.1"}`;
    });
    parts.push(svg("path", { d: path, class: name, "vector-effect": "non-scaling-stroke" }));
  }
  for (const { its, x, wide } of points) {
    const hover = svg("rect", { x, y: 0, width: wide, height: HIGH, class: "hover" });
    hover.append(svg("title", {}, `${clock(its.at, frame.length)}: p50 ${span(its[of].p50)}, p95 ${span(its[of].p95)}, p99 ${span(its[of].p99)}`));
    leads(hover, frame.to(Date.parse(its.at), frame.step), frame.go);
    parts.push(hover);
  }
  chart.replaceChildren(...parts);
  const highest = Math.max(...measured.items.map((its) => its[of].p95), 0);
  chart.highest.textContent = measured.items.length ? `from ${span(Math.exp(least))} to ${span(Math.exp(most))}, logarithmic` : "";
  chart.setAttribute("aria-label", `Percentiles of ${title}, step by step; the highest p95: ${span(highest)}`);
}
