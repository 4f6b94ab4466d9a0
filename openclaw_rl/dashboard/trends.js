/** Measures over the versions of a line: small pictures, one for each, and what went wrong with which version. */

import { h, svg } from "./dom.js";
import { figure } from "./format.js";
import { icon } from "./icons.js";
import { t } from "./i18n.js";
import { measureName, versionLink } from "./parts.js";

/** @typedef {import("./api").Trend} Trend */

const WIDTH = 240;
const HEIGHT = 70;
const FIRST = ["towards_user", "capability", "tokens", "repetition", "refusals", "reward/mean"];
/** A limit is drawn where it is near what was measured: so many times its span away at most. */
const NEAR = 2;

/** @param {import("./api").Trends} found */
export function trendsOf(found) {
  const shown = found.trends.filter((trend) => trend.points.length);
  const first = FIRST.flatMap((name) => shown.filter((trend) => trend.name === name));
  const rest = shown.filter((trend) => !first.includes(trend));
  return [
    h("h2", null, t("trends.title")),
    h("p", null, t("trends.text")),
    found.alarms.map((alarm) => h("div", { class: "trouble broken" }, h("div", { class: "row" }, icon("warn"), h("b", null, t("alarm")), versionLink(alarm.version, found.user)), h("p", { class: "small" }, alarm.words))),
    shown.length ? h("div", { class: "trend" }, first.map(trendOf)) : h("p", { class: "soft" }, t("trends.none")),
    rest.length ? h("details", { class: "all-trends" }, h("summary", null, t("trends.all")), h("div", { class: "trend" }, rest.map(trendOf))) : null,
  ];
}

/** @param {Trend} trend */
function trendOf(trend) {
  const { points } = trend;
  const words = measureName(trend);
  const last = points.at(-1);
  const bases = points.flatMap((point) => (point.base === null ? [] : [point.base]));
  const measured = [...points.map((point) => point.value), ...bases];
  const reach = NEAR * (Math.max(...measured) - Math.min(...measured) || 0);
  const limits = [trend.low, trend.high].filter((one) => one !== null && one > Math.min(...measured) - reach && one < Math.max(...measured) + reach);
  const values = [...measured, .../** @type {number[]} */ (limits)];
  const least = Math.min(...values);
  const most = Math.max(...values);
  const span = most - least || Math.abs(most) || 1;
  const low = most === least ? least - span / 2 : least;
  const x = (/** @type {number} */ index) => (points.length === 1 ? WIDTH / 2 : (index / (points.length - 1)) * WIDTH);
  const y = (/** @type {number} */ value) => HEIGHT - 6 - ((value - low) / span) * (HEIGHT - 12);
  const curve = points.map((point, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(point.value).toFixed(1)}`).join("");
  const base = bases.at(-1);
  const marks = points.map((point, index) => {
    const isOut = point.state === "rejected" || point.state === "rolled_back";
    return svg("circle", { cx: x(index), cy: y(point.value), r: points.length > 60 ? 1.5 : 3, class: isOut ? "out" : "in" }, svg("title", null, `${point.version}: ${figure(point.value)}`));
  });
  const label = t("trend.label", { what: words, n: points.length, first: figure(points[0]?.value ?? 0), last: figure(last?.value ?? 0) });
  return h(
    "figure",
    { class: "card" },
    h("figcaption", null, h("span", null, words), h("b", null, last ? figure(last.value) : "–")),
    svg("svg", { viewBox: `-4 0 ${WIDTH + 8} ${HEIGHT}`, role: "img", "aria-label": label }, base === undefined ? null : svg("line", { x1: 0, x2: WIDTH, y1: y(base), y2: y(base), class: "ground" }), limits.map((one) => svg("line", { x1: 0, x2: WIDTH, y1: y(one ?? 0), y2: y(one ?? 0), class: "limit" })), svg("path", { d: curve, class: "curve" }), marks),
    h("div", { class: "row apart small soft" }, h("span", null, points[0]?.version ?? ""), base === undefined ? null : h("span", null, t("trend.base", { value: figure(base) })), h("span", null, last?.version ?? "")),
  );
}
