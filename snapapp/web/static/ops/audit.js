// Who did what, and when.

import { make, put } from "/static/parts/page.js";
import { ask, button, link, moment, number, panel, query, table } from "/static/ops/parts.js";

const EVERY = 5000; // ms between two looks
const PAGE = 50;

const SQL = `SELECT at, who, door, action, subject, jobs, detail
  FROM job_audit ORDER BY id DESC LIMIT 50;`;

export function auditView({ query: asked, go }) {
  const before = asked.get("before");
  const subject = asked.get("subject");
  const deeds = table(
    [["When", "when"], ["Who"], ["What"], ["To what"], ["Jobs", "num"], ["Said", "wide"]],
    before || subject ? "There is nothing further." : "Nobody has done anything yet.",
  );
  const more = button("Older", () => {}, { hidden: true });
  const list = panel("Audit", { sql: SQL, note: "what people did through this page and /internal; kept for 90 days at least" }, deeds.element, more);
  return {
    title: "Audit",
    every: EVERY,
    element: make("div", {}, make("h1", { className: "unseen", textContent: "Audit" }), list),
    async refresh() {
      const { items, next } = await ask(`/internal/audit${query({ before, subject, limit: PAGE })}`);
      deeds.fill(items.map(deedRow));
      more.hidden = next === null;
      more.onclick = () => go(`/ops/audit${query({ subject, before: next })}`);
    },
  };
}

export function deedRow(its) {
  const who = make("span", {}, its.who || make("i", { textContent: "no name given" }), make("span", { className: "quiet", textContent: ` by ${its.door}` }));
  return [moment(its.at), who, its.action, subjectOf(its), number(its.jobs), detailOf(its.detail)];
}

function subjectOf({ subject }) {
  const [type, name] = [subject.slice(0, subject.indexOf(" ")), subject.slice(subject.indexOf(" ") + 1)];
  if (type === "job") return link(`/ops/jobs/${name}`, subject);
  if (type === "queue") return link(`/ops/jobs${query({ queue: name })}`, subject);
  if (type === "schedule") return link(`/ops/schedules/${encodeURIComponent(name)}`, subject);
  return subject;
}

function detailOf(detail) {
  const words = make("span");
  put(words, Object.entries(detail).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(" · "));
  return words;
}
