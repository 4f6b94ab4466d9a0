/** What became of something that was said: heard, judged, learning, being checked, live; with the time each took. */

import { fill, h } from "./dom.js";
import { duration, percent, when } from "./format.js";
import { icon } from "./icons.js";
import { has, language, parts, t } from "./i18n.js";
import { chip, known, told, versionLink } from "./parts.js";

/** @typedef {import("./api").Correction} Correction */

const MOVING = ["heard", "judged", "learning", "checking"];
/** The stage that is under way, by the state that the correction is in. @type {Record<string, string>} */
const NEXT = { heard: "judged", judged: "learning", learning: "learning", checking: "checked" };
const ENDS = ["left_out", "rejected", "taken_back"];
/** Between two stages that took less than this nothing is worth saying. */
const BRIEF_S = 0.05;

/** @param {Correction} correction */
export function isMoving(correction) {
  return MOVING.includes(correction.state);
}

/** @param {Correction} correction */
export function stateChip(correction) {
  const { state, version } = correction;
  return stateOf(state, version);
}

/**
 * @param {string} state
 * @param {string | null} version
 */
export function stateOf(state, version) {
  const kind = state === "live" ? "good" : ENDS.includes(state) ? (state === "rejected" ? "warn" : "") : "accent";
  const drawing = state === "live" ? "check" : ENDS.includes(state) ? (state === "taken_back" ? "undo" : "cross") : "spark";
  return chip(stateWords(state, version), kind, drawing);
}

/**
 * @param {string} state
 * @param {string | null} version
 */
export function stateWords(state, version) {
  if (state === "live" && version) return t("state.live-in", { version });
  return t(`state.${state}`);
}

/**
 * The verdict in words of the person who is judged by nobody: it is the answer that is judged.
 * @param {string | null} verdict
 */
export function verdictChip(verdict) {
  if (verdict === null) return chip(t("verdict.none"), "");
  if (verdict === "abstained" || verdict === "failed") return chip(t(`verdict.${verdict}`), verdict === "failed" ? "warn" : "");
  const kind = /^\+|^👍/u.test(verdict) ? "good" : verdict.startsWith("−") || verdict.startsWith("-") ? "bad" : "";
  const words = kind === "good" ? t("verdict.good") : kind === "bad" ? t("verdict.bad") : t("verdict.neutral");
  return chip(`${words} (${verdict})`, kind && `verdict ${kind}`, kind === "good" ? "up" : kind === "bad" ? "down" : "");
}

/** @param {Correction} correction */
export function wayOf(correction) {
  const { state } = correction;
  const now = NEXT[state];
  const isEnded = ENDS.includes(state);
  const reached = correction.stages.filter((stage) => stage.at !== null);
  const items = correction.stages.map((stage) => {
    const isNow = stage.name === now;
    const isDone = stage.at !== null && !isNow;
    if (!isDone && isEnded) return null;
    const kind = isDone ? "done" : isNow ? "now" : "";
    const name =
      stage.name === "live" && isDone && correction.version
        ? t("state.live-in", { version: correction.version })
        : t(isNow ? `stage.${stage.name}.${stage.at === null ? "now" : "on"}` : `stage.${stage.name}`);
    const took = stage.at !== null && stage.took_s !== null && stage.took_s > BRIEF_S ? h("span", { class: "took" }, duration(stage.took_s)) : null;
    return h(
      "li",
      { class: kind, title: language() === "en" && isDone ? stage.words : null },
      h("span", { class: "mark", "aria-hidden": "true" }, isDone ? icon("check") : null),
      h("span", null, name, h("span", { class: "unseen" }, ` (${t(isDone ? "stage.done" : isNow ? "stage.underway" : "stage.later")})`)),
      took,
    );
  });
  if (isEnded) {
    items.push(
      h("li", { class: "ended" }, h("span", { class: "mark", "aria-hidden": "true" }, icon(state === "taken_back" ? "undo" : "cross")), stateWords(state, correction.version)),
    );
  }
  return h("ol", { class: "way", "aria-label": t("journey.label", { n: reached.length }) }, items);
}

/** @param {Correction} correction */
export function whyWords(correction) {
  const left = correction.left_out;
  if (left) return leftOut(left);
  const judged = correction.stages.find((stage) => stage.name === "judged");
  const why = judged?.at ? reasonWords(judged.words) : "";
  const now = language() === "en" && correction.state !== "live" ? correction.words : "";
  return why || now ? h("p", { class: "why said" }, [why, now].filter(Boolean).join(" · ")) : null;
}

/**
 * The judge's reason, in a person's words where they are known.
 * @param {string} reason
 */
export function reasonWords(reason) {
  const sure = /heads: [+−-]?\d at (\d\.\d+)/.exec(reason)?.[1];
  return sure ? t("why.heads", { sure: percent(Number(sure)) }) : known(reason);
}

/** @param {import("./api").LeftOut} left */
export function leftOut(left) {
  const remedy = told(`left-out.${left.reason}.remedy`, left.remedy);
  return h(
    "div",
    { class: "left-out small" },
    h("p", null, told(`left-out.${left.reason}`, left.words)),
    remedy ? h("p", { class: "soft" }, has("left-out.remedy") ? `${t("left-out.remedy")} ` : "", remedy) : null,
  );
}

/**
 * Under an answer. What is on its way stands open; what is over is a line that opens.
 */
export class Journey {
  constructor() {
    this.place = h("div");
    this.hasMoved = false;
    this.isOpen = false;
    /** @type {Correction | null} */
    this.shown = null;
  }

  /** @param {Correction | null} correction */
  show(correction) {
    if (correction === null) return fill(this.place);
    if (this.shown && this.shown.state !== correction.state) this.hasMoved = true;
    if (isMoving(correction)) this.hasMoved = true;
    this.shown = correction;
    const isNothing = correction.state === "left_out";
    const isOpen = this.hasMoved && !isNothing;
    const link = h("a", { class: "small", href: `#/lessons/${encodeURIComponent(correction.turn)}` }, t("journey.lesson"));
    const heard = correction.stages[0];
    const body = [
      h("div", { class: "row" }, verdictChip(correction.verdict), correction.hints[0] ? h("span", { class: "small" }, parts("journey.wish", { hint: correction.hints[0] })) : null),
      whyWords(correction),
      h("div", { class: "row small soft" }, heard?.at ? when(heard.at) : null, link, correction.version ? versionLink(correction.version) : null),
    ];
    if (isOpen) {
      fill(this.place, h("section", { class: "journey", "aria-label": t("journey.title") }, wayOf(correction), body));
    } else {
      const details = h(
        "details",
        { class: "journey-line small", open: this.isOpen },
        h("summary", null, t(isNothing ? "journey.nothing" : "journey.was"), " ", isNothing ? null : h("span", null, stateWords(correction.state, correction.version))),
        h("section", { class: "journey" }, wayOf(correction), body),
      );
      details.addEventListener("toggle", () => {
        this.isOpen = details.open;
      });
      fill(this.place, details);
    }
  }
}
