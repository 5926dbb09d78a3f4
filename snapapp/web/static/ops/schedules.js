// The view of schedules: when each fires next, what happened at its slots, and its switch for pausing.

import { make } from "/static/parts/page.js";
import {
  ask, badge, change, changeButton, jobLink, learnTime, link, literal, loadPanels, moment, number, panel, pauseSwitch, paused, renew, sure, table,
} from "/static/ops/parts.js";

const EVERY = 5000; // ms between two looks
const COMING = 10; // next slots that are shown

const SWITCH = {
  noun: "it",
  pause: "Its slots are skipped, with the reason written down, until it is resumed.",
  resume: "It fires again. Slots that passed meanwhile are not made up for.",
};
const UNDECLARED = "It does not fire: no worker that is alive has it in its code.\n";

const addressOf = (name) => `/ops/schedules/${encodeURIComponent(name)}`;
export const pathOf = (name) => `/internal/schedules/${encodeURIComponent(name)}`;

export function schedulesView({ again, go }) {
  const schedules = table(
    [["Schedule"], ["When"], ["Next", "num"], ["Last", "num"], ["What became of it", "wide"], ["Workers", "num"], ["", "acts"]],
    "No worker has declared a schedule.",
  );
  const list = panel("Schedules", { sql: "SELECT * FROM schedule_overview;" }, schedules.element);
  return {
    title: "Schedules",
    every: EVERY,
    element: make("div", {}, make("h1", { className: "unseen", textContent: "Schedules" }), list),
    async refresh() {
      const { items } = await ask("/internal/schedules");
      if (items.length) learnTime(items[0].now);
      schedules.fill(items.map((its) => [
        link(addressOf(its.name), its.name),
        make("code", { textContent: its.spec }),
        its.pausedAt ? paused(its) : moment(its.workers ? its.nextSlot : null),
        moment(its.lastSlot),
        lastOf(its),
        workersOf(its),
        actionsOf(its, again, go),
      ]));
    },
  };
}

export function scheduleView({ parts: [name], again, go }) {
  const what = make("p", { className: "explain" });
  const actions = make("div", { className: "actions" });
  const ledger = table([["Slot", "when"], ["Outcome"], ["Why", "wide"], ["Job", "num"], ["Written down", "num"]], "No slot has passed yet.");
  const slots = panel("What became of its slots", {
    note: "a slot is a time at which it should fire",
    sql: `SELECT slot, outcome, why, job_id, recorded_at FROM job_schedule_slot\n WHERE schedule = ${literal(name)} ORDER BY slot DESC LIMIT 20;`,
  }, ledger.element);
  const coming = make("ol", { className: "coming" });
  const next = panel("Next", {}, coming);

  async function showSchedule() {
    const its = await ask(pathOf(name));
    learnTime(its.now);
    what.replaceChildren(its.workers ? "" : make("b", { className: "bad", textContent: UNDECLARED }), described(its));
    next.hidden = !its.workers;
    renew(actions, [actionsOf(its, again, go)]);
    ledger.fill(its.slots.map((slot) => [
      moment(slot.slot), outcome(slot.outcome), slot.why ?? "",
      slot.jobId ? make("span", {}, jobLink(slot.jobId), " ", slot.jobStatus ? badge(slot.jobStatus) : "pruned") : "", moment(slot.recordedAt),
    ]));
  }

  async function showComing() {
    const { items } = await ask(`${pathOf(name)}/preview?count=${COMING}`);
    coming.replaceChildren(...items.map((slot) =>
      make("li", {}, moment(slot.at), make("span", { className: "quiet", textContent: slot.note ? ` ${slot.note}` : "" }))));
  }

  return {
    title: name,
    every: EVERY,
    element: make("div", {}, make("div", { className: "title" }, make("h1", { textContent: name }), actions), what,
      make("div", { className: "two" }, slots, next)),
    refresh: () => loadPanels([[slots, showSchedule], [next, showComing]]),
  };
}

function described(its) {
  const missed = { skip: "are skipped", once: "run once, late", all: `run, late, at most ${its.atMost}` }[its.missed];
  const parts = [
    `It fires by ${its.spec} on the clocks of ${its.tz}, into the queue ${its.queue}.`,
    `Slots that nobody noticed in time ${missed}.`,
    its.overlap ? "It fires although the job of the slot before may still run." : "It does not fire while the job of the slot before has not ended.",
  ];
  if (its.pausedAt) parts.push(`It is paused${its.pausedReason ? `: ${its.pausedReason}` : ""}.`);
  return parts.join("\n");
}

function outcome(word) {
  const state = { fired: "COMPLETED", late: "RETRY_WAIT", skipped: "CANCELLED" }[word];
  return badge(state, word);
}

function lastOf(its) {
  if (!its.lastOutcome) return "";
  return make("span", {}, outcome(its.lastOutcome), ` ${its.lastWhy ?? ""} `, its.lastJob ? jobLink(its.lastJob) : "", " ",
    its.lastJob && its.lastJobStatus ? badge(its.lastJobStatus) : "");
}

const workersOf = (its) => (its.workers ? link("/ops/workers", number(its.workers)) : make("b", { className: "bad", textContent: "none" }));

function actionsOf(its, again, go) {
  const path = pathOf(its.name);
  const run = changeButton("Run now …", () => sure({
    title: `Run ${its.name} now`, text: "Its job is enqueued besides its slots, even while it is paused.", yes: "Run it now",
    act: () => change(`${path}/run`), done: ({ jobId }) => go(`/ops/jobs/${jobId}`),
  }));
  return make("span", { className: "buttons" }, run, pauseSwitch(its, { name: its.name, path, ...SWITCH, again }));
}
