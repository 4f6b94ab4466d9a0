/** Line drawings, 24 by 24. They are ornaments: what they stand for is always said in words, too. */

import { svg } from "./dom.js";

/** @type {Record<string, string[]>} */
const PATHS = {
  chat: ["M4 5.5h16v11H9.5L5.5 20v-3.5H4z"],
  lessons: ["M4 5c3-1 5.5-.6 8 1 2.5-1.6 5-2 8-1v13c-3-1-5.500-.6-8 1-2.500-1.600-5-2-8-1z", "M12 6v13"],
  versions: ["M6 4v16", "M6 15c0-5 12-3 12-8", "M18 4.500v2.500"],
  machine: ["M4 13h3l2.500-7 4.500 13 2.500-8 1 2H20"],
  settings: ["M4 7h9", "M17 7h3", "M4 17h3", "M11 17h9", "M15 5v4", "M9 15v4"],
  send: ["M12 19V5", "M6 11l6-6 6 6"],
  stop: ["M7 7h10v10H7z"],
  plus: ["M12 5v14", "M5 12h14"],
  up: ["M7 11v9H4v-9z", "M7 11l4-7c1.500 0 2.500 1 2.500 2.500L13 10h5.500c1 0 1.800 1 1.500 2l-1.500 6.500c-.2 1-1 1.500-2 1.500H7"],
  down: ["M17 13V4h3v9z", "M17 13l-4 7c-1.500 0-2.500-1-2.500-2.500L11 14H5.500c-1 0-1.800-1-1.500-2l1.500-6.500C5.700 4.500 6.500 4 7.500 4H17"],
  again: ["M19 12a7 7 0 1 1-2-5", "M19 3.500V8h-4.500"],
  edit: ["M5 19l1-4L16 5l3 3L9 18z", "M14 7l3 3"],
  copy: ["M9 9h10v10H9z", "M15 9V5H5v10h4"],
  lock: ["M6 11h12v9H6z", "M8.500 11V8a3.500 3.500 0 0 1 7 0v3"],
  trash: ["M5 7h14", "M9 7V4.500h6V7", "M7 7l1 13h8l1-13"],
  undo: ["M9 6L4.500 10.500 9 15", "M5 10.500h9a5 5 0 0 1 0 10h-2"],
  check: ["M5 12.500l4.500 4.500L19 7"],
  cross: ["M6 6l12 12", "M18 6L6 18"],
  dot: ["M12 8.500a3.500 3.500 0 1 0 0 7 3.500 3.500 0 0 0 0-7z"],
  sun: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 3v2", "M12 19v2", "M3 12h2", "M19 12h2", "M5.600 5.600L7 7", "M17 17l1.400 1.400", "M5.600 18.400L7 17", "M17 7l1.400-1.400"],
  moon: ["M19.500 14A8 8 0 0 1 10 4.500 8 8 0 1 0 19.500 14z"],
  auto: ["M12 4a8 8 0 1 0 0 16z", "M12 4a8 8 0 0 1 0 16"],
  menu: ["M4 7h16", "M4 12h16", "M4 17h10"],
  arrow: ["M5 12h14", "M13 6l6 6-6 6"],
  chevron: ["M9 6l6 6-6 6"],
  compare: ["M4 5h6v14H4z", "M14 5h6v14h-6z"],
  warn: ["M12 4L3.500 19h17z", "M12 10v4", "M12 16.500v.5"],
  download: ["M12 4v11", "M7 11l5 5 5-5", "M5 20h14"],
  search: ["M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12z", "M15.500 15.500L20 20"],
  spark: ["M12 3l2 7 7 2-7 2-2 7-2-7-7-2 7-2z"],
};

/**
 * @param {string} name
 * @returns {SVGElement}
 */
export function icon(name) {
  return svg(
    "svg",
    { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    (PATHS[name] ?? []).map((d) => svg("path", { d })),
  );
}
