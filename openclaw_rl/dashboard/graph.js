/** A line of versions as a graph: the newest on top, each tied to the one that it grew from. */

import { h, svg } from "./dom.js";
import { when } from "./format.js";
import { t } from "./i18n.js";
import { chip } from "./parts.js";

/** @typedef {import("./api").VersionRow} VersionRow */

const ROW = 58;
const LANE = 16;
const LEFT = 20;
const MOST_LANES = 6;

/**
 * @param {{ rows: VersionRow[], answering: string, chosen: string, choose: (version: string) => void, isWhole: boolean }} given
 */
export function lineGraph({ rows, answering, chosen, choose, isWhole }) {
  const lanes = lanesOf(rows);
  const width = LEFT + Math.max(0, ...lanes.values()) * LANE + 16;
  const place = new Map(rows.map((row, index) => [row.number, index]));
  if (isWhole) place.set(0, rows.length);
  const x = (/** @type {number} */ number) => LEFT + (lanes.get(number) ?? 0) * LANE;
  const y = (/** @type {number} */ number) => (place.get(number) ?? rows.length) * ROW + ROW / 2;
  const paths = rows.map((row) => {
    const from = { x: x(row.number), y: y(row.number) };
    const to = { x: x(row.parent), y: y(row.parent) };
    const bend = from.x === to.x ? `L${to.x} ${to.y}` : `L${from.x} ${to.y - ROW / 2} Q${from.x} ${to.y} ${to.x} ${to.y}`;
    return svg("path", { d: `M${from.x} ${from.y}${bend}`, class: row.is_ancestor || row.answers ? "main" : "" });
  });
  const dots = [...place.keys()].map((number) => {
    const row = rows.find((one) => one.number === number);
    const isIt = row ? row.answers : answering === "v0";
    const ended = row && ["rejected", "rolled_back", "no_effect"].includes(row.state);
    return svg("circle", { cx: x(number), cy: y(number), r: isIt ? 6.5 : 5, class: `dotmark ${isIt ? "live" : ended ? "ended" : ""}` });
  });
  const node = (/** @type {string} */ version, /** @type {number} */ number, /** @type {import("./dom.js").Some[]} */ name, /** @type {import("./dom.js").Some[]} */ sub) => {
    const it = h("button", { type: "button", class: "node", "aria-pressed": String(chosen === version), onclick: () => choose(version) }, h("span", { class: "name" }, name), h("span", { class: "sub" }, sub));
    it.style.setProperty("top", `${(place.get(number) ?? 0) * ROW}px`);
    it.style.setProperty("padding-left", `${width}px`);
    return it;
  };
  const nodes = rows.map((row) =>
    node(
      row.version,
      row.number,
      [row.version, row.answers ? chip(t("version.answers"), "good") : row.state === "retired" || row.state === "live" ? null : chip(t(`version.state.${row.state}`), row.state === "rejected" ? "bad" : "warn")],
      [t("version.lessons", { n: row.num_lessons }), " · ", when(row.created_at)],
    ),
  );
  if (isWhole) nodes.push(node("v0", 0, ["v0", answering === "v0" ? chip(t("version.answers"), "good") : null], [t("version.state.base")]));
  const drawing = svg("svg", { "aria-hidden": "true", width, height: (rows.length + 1) * ROW }, paths, dots);
  const inner = h("div", { class: "nodes", role: "group", "aria-label": t("graph.label") }, nodes, drawing);
  inner.style.setProperty("height", `${nodes.length * ROW}px`);
  return h("div", { class: "line-graph" }, inner);
}

/**
 * What answers, and what it grew from, stands in the first lane; what ended beside it in the others.
 * @param {VersionRow[]} rows
 */
export function lanesOf(rows) {
  /** @type {Map<number, number>} */
  const lanes = new Map([[0, 0]]);
  const taken = new Map(/** @type {[number, number][]} */ ([]));
  for (const row of [...rows].reverse()) {
    if (row.is_ancestor || row.answers) lanes.set(row.number, 0);
    else {
      const parent = lanes.get(row.parent) ?? 0;
      const lane = parent > 0 && !taken.has(row.parent) ? parent : Math.min(MOST_LANES, parent + 1);
      if (parent > 0) taken.set(row.parent, lane);
      lanes.set(row.number, lane);
    }
  }
  return lanes;
}
