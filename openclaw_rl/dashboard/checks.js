/** The report of a check as a picture: each measure on its scale, with what is allowed, the parent's, and the candidate's. */

import { h } from "./dom.js";
import { figure } from "./format.js";
import { t } from "./i18n.js";
import { chip, measureName, told } from "./parts.js";

/** @typedef {import("./api").CheckMeasure} CheckMeasure */

/** @param {import("./api").VersionDetail} found */
export function measures(found) {
  if (!found.measures.length) return h("p", { class: "soft" }, t("check.nothing"));
  const isWith = found.measures.some((one) => one.low !== null || one.high !== null);
  return [
    isWith ? h("p", { class: "soft small check-legend" }, h("i", { class: "key allowed" }), t("check.allowed"), h("i", { class: "key parent" }), t("check.parent"), h("i", { class: "key now" }), t("check.candidate")) : null,
    h("div", { class: "bars" }, found.measures.map(measure)),
  ];
}

/** @param {CheckMeasure} one */
function measure(one) {
  const text = one.candidate === null ? "–" : figure(one.candidate);
  return h(
    "div",
    { class: "bar-line" },
    h("span", { title: one.words }, measureName(one), one.objects ? " " : null, one.objects ? chip(t("check.objects"), "bad", "cross") : null),
    one.candidate === null ? h("span") : scale(one, one.candidate),
    h("span", { class: "figure" }, text, one.limit ? ` · ${one.limit}` : ""),
  );
}

/**
 * @param {CheckMeasure} one
 * @param {number} value
 */
function scale(one, value) {
  const known = [value, one.parent, one.low, one.high].filter((each) => each !== null);
  const least = Math.min(0, ...known);
  const most = Math.max(...known, least + 1e-9) * 1.12;
  const at = (/** @type {number} */ each) => `${Math.max(0, Math.min(100, ((each - least) / (most - least)) * 100))}%`;
  const place = h("span", { class: one.objects ? "range over" : "range", "aria-hidden": "true" });
  if (one.low !== null || one.high !== null) {
    const band = h("span", { class: "allowed" });
    band.style.setProperty("left", one.low === null ? "0" : at(one.low));
    band.style.setProperty("right", one.high === null ? "0" : `calc(100% - ${at(one.high)})`);
    place.append(band);
  }
  if (one.parent !== null) place.append(mark("parent", at(one.parent)));
  place.append(mark("now", at(value)));
  return place;
}

/**
 * @param {string} kind
 * @param {string} left
 */
function mark(kind, left) {
  const it = h("i", { class: kind });
  it.style.setProperty("left", left);
  return it;
}

/** @param {import("./api").VersionDetail} found */
export function proofOf(found) {
  if (!found.proof) return null;
  return h("p", { class: "small proof" }, chip(t(found.proof.is_proved ? "check.proved" : "check.not-proved"), found.proof.is_proved ? "good" : "bad", found.proof.is_proved ? "check" : "cross"), " ", h("span", { class: "soft" }, found.proof.words));
}

/** @param {import("./api").ServedCount[]} served */
export function servedOf(served) {
  if (!served.length) return null;
  const rows = served.map((one) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, told(`served.${one.name}`, one.words || one.name), one.is_alarm ? " " : null, one.is_alarm ? chip(t("alarm"), "bad", "warn") : null),
      h("td", { class: "num right" }, `${one.num} / ${one.of}`),
      h("td", { class: "num right" }, `${one.parent_num} / ${one.parent_of}`),
    ),
  );
  return h(
    "div",
    { class: "scroll" },
    h("h4", null, t("served.title")),
    h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, t("served.what")), h("th", { scope: "col", class: "right" }, t("served.this")), h("th", { scope: "col", class: "right" }, t("served.parent")))), h("tbody", null, rows)),
  );
}
