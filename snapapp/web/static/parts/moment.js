// A moment in words, for all pages that show moments.

import { serverTime } from "/static/parts/page.js";
import { t, timespan, told } from "/static/parts/words.js";

export const isNamed = (snap) => snap.subject.id !== snap.snapId;
export const nameOf = (snap) => (isNamed(snap) ? snap.subject.id : t("not described yet"));
export const momentOf = (snap) => snap.resolvedStartSeconds ?? snap.startSeconds ?? 0;

/** What is wrong with the time in the input; empty if nothing is. Half a time has an empty value, as none has. */
export function flawOfFilmed({ validity }) {
  if (validity.badInput || validity.valueMissing) return t("Enter a day and a time.");
  if (validity.rangeOverflow) return [t("That has not been yet."), flawOfClock()].filter(Boolean).join(" ");
  return validity.rangeUnderflow ? t("That is before there were such cameras.") : "";
}

const CLOSE = 5 * 60_000; // ms; no filming time that a person enters is more exact

/** Whether whoever reads a time off this computer enters a wrong one, in words; empty if not. */
export function flawOfClock() {
  const off = Date.now() - serverTime();
  if (Math.abs(off) < CLOSE) return "";
  const by = { time: timespan(Math.abs(off)) };
  return off > 0 ? t("This computer's clock is {time} ahead.", by) : t("This computer's clock is {time} behind.", by);
}

const LABELS = { id: "Subject", observacoes: "Notes", brinco: "Ear tag", raca: "Breed", sexo: "Sex", peso_referencia: "Weight, kg", condicao_corporal: "Body condition", lote: "Lot", pasto: "Pasture" };
/** The label of a template's field. */
export const labelOf = (key) => (LABELS[key] ? t(LABELS[key]) : key.replaceAll("_", " "));

/** The state of a snap: in words, and as the name by which the style sheet colours it. */
export function stateOf(snap) {
  const { job } = snap;
  const tried = job?.attempts > 1 || job?.status === "RETRY_WAIT" ? t("attempt {n} of {m}", { n: job.attempts, m: job.maxAttempts }) : "";
  if (snap.status === "COMPLETED") {
    const frames = snap.frameCount === 1 ? t("1 frame") : t("{n} frames", { n: snap.frameCount });
    return { state: "COMPLETED", words: snap.snapshotVideo ? `${frames} + ${t("clip")}` : frames };
  }
  if (snap.status === "FAILED") {
    const after = job ? t("after attempt {n} of {m}", { n: job.attempts, m: job.maxAttempts }) : "";
    return { state: "FAILED", words: [t("failed"), after].filter(Boolean).join(" ") };
  }
  if (job?.status === "RUNNING") return { state: "RUNNING", words: [told(job.progress?.note ?? t("running")), tried].filter(Boolean).join(", ") };
  if (job?.status === "RETRY_WAIT") return { state: "RETRY_WAIT", words: [t("tries again soon"), tried].join(", ") };
  const { note, percent } = job?.progress ?? {}; // with a percentage it is of an attempt that was handed back
  return { state: "PENDING", words: note && percent === undefined ? told(note) : t("queued") };
}
