/**
 * Markdown -> nodes. What a model writes is never trusted: there are no raw tags, no pictures from elsewhere, and links
 * lead to http, https and mailto alone. Both passes go through the text once, whatever it holds.
 */

import { h } from "./dom.js";
import { icon } from "./icons.js";
import { t } from "./i18n.js";

const MAX_DEPTH = 8;
/** Lists and quotes deeper than this stand as text, and so does emphasis. */

/** @typedef {{ kind: string, lines: string[], info: string }} Block */

/**
 * Text that grows: blocks that stay the same keep their nodes, so that a selection in them survives the stream.
 */
export class Markdown {
  /** @param {HTMLElement} place */
  constructor(place) {
    this.place = place;
    /** @type {string[]} */
    this.shown = [];
  }

  /** @param {string} text */
  show(text) {
    const blocks = split(text.replace(/\r\n?/g, "\n").split("\n"));
    blocks.forEach((block, index) => {
      const source = `${block.kind}\u0000${block.info}\u0000${block.lines.join("\n")}`;
      if (this.shown[index] === source) return;
      const node = build(block, 0);
      const old = this.place.childNodes[index];
      if (old) old.replaceWith(node);
      else this.place.append(node);
      this.shown[index] = source;
    });
    while (this.place.childNodes.length > blocks.length) this.place.lastChild?.remove();
    this.shown.length = blocks.length;
  }
}

/**
 * @param {string} text
 * @returns {HTMLElement}
 */
export function markdown(text) {
  const place = h("div", { class: "prose" });
  new Markdown(place).show(text);
  return place;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ITEM = /^( {0,7})([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

/**
 * @param {string[]} lines
 * @returns {Block[]}
 */
function split(lines) {
  /** @type {Block[]} */
  const blocks = [];
  let at = 0;
  /** @type {string[]} */
  let paragraph = [];
  const close = () => {
    if (paragraph.length) blocks.push({ kind: "p", lines: paragraph, info: "" });
    paragraph = [];
  };
  while (at < lines.length) {
    const line = lines[at] ?? "";
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (!line.trim()) {
      close();
      at += 1;
    } else if (fence) {
      close();
      const mark = fence[1] ?? "```";
      const end = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}\\s*$`);
      const body = [];
      at += 1;
      while (at < lines.length && !end.test(lines[at] ?? "")) body.push(lines[at++] ?? "");
      at += 1;
      blocks.push({ kind: "code", lines: body, info: (fence[2] ?? "").trim() });
    } else if (heading) {
      close();
      blocks.push({ kind: "heading", lines: [heading[2] ?? ""], info: String(heading[1]?.length ?? 1) });
      at += 1;
    } else if (RULE.test(line)) {
      close();
      blocks.push({ kind: "rule", lines: [], info: "" });
      at += 1;
    } else if (QUOTE.test(line)) {
      close();
      const body = [];
      while (at < lines.length && QUOTE.test(lines[at] ?? "")) body.push(QUOTE.exec(lines[at++] ?? "")?.[1] ?? "");
      blocks.push({ kind: "quote", lines: body, info: "" });
    } else if (ITEM.test(line) && (!paragraph.length || !/^\s*\d/.test(line) || /^\s*1[.)]/.test(line))) {
      close();
      const ordered = /^\s*\d/.test(line);
      const body = [];
      while (at < lines.length) {
        const next = lines[at] ?? "";
        const item = ITEM.exec(next);
        const isItem = item !== null && (/^\s{2,}/.test(next) || /^\s*\d/.test(next) === ordered);
        const goesOn = /^\s{2,}\S/.test(next) || (!next.trim() && /^(\s{2,}\S)/.test(lines[at + 1] ?? ""));
        const another = !next.trim() && ITEM.test(lines[at + 1] ?? "") && /^\s*\d/.test(lines[at + 1] ?? "") === ordered;
        if (!isItem && !goesOn && !another) break;
        body.push(next);
        at += 1;
      }
      blocks.push({ kind: ordered ? "ol" : "ul", lines: body, info: "" });
    } else if (line.includes("|") && TABLE_RULE.test(lines[at + 1] ?? "") && (lines[at + 1] ?? "").includes("-")) {
      close();
      const body = [];
      while (at < lines.length && (lines[at] ?? "").includes("|")) body.push(lines[at++] ?? "");
      blocks.push({ kind: "table", lines: body, info: "" });
    } else {
      paragraph.push(line);
      at += 1;
    }
  }
  close();
  return blocks;
}

/**
 * @param {Block} block
 * @param {number} depth
 * @returns {HTMLElement}
 */
function build(block, depth) {
  if (depth > MAX_DEPTH) return h("p", null, block.lines.join("\n"));
  switch (block.kind) {
    case "code":
      return codeBlock(block.lines.join("\n"), block.info);
    case "heading": {
      // The page itself has the first two levels: an answer's own headings begin below them.
      const level = Math.min(6, Number(block.info) + 2);
      return h(/** @type {"h3"} */ (`h${level}`), null, inline(block.lines[0]?.replace(/\s#+\s*$/, "") ?? "", 0));
    }
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", null, split(block.lines).map((one) => build(one, depth + 1)));
    case "ul":
    case "ol":
      return list(block, depth);
    case "table":
      return table(block.lines);
    default:
      return h("p", null, inline(block.lines.map((line) => line.replace(/^\s+/, "")).join("\n"), 0));
  }
}

/**
 * @param {string} text
 * @param {string} language
 */
function codeBlock(text, language) {
  const copy = h("button", { class: "copy quiet", type: "button", title: t("copy") }, icon("copy"), h("span", null, t("copy")));
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.lastElementChild?.replaceChildren(t("copied"));
    setTimeout(() => copy.lastElementChild?.replaceChildren(t("copy")), 1600);
  });
  return h(
    "figure",
    { class: "code" },
    h("figcaption", null, h("span", null, language.split(/\s/)[0] || t("code")), copy),
    h("pre", { tabindex: "0" }, h("code", null, text)),
  );
}

/**
 * @param {Block} block
 * @param {number} depth
 */
function list(block, depth) {
  const first = ITEM.exec(block.lines[0] ?? "");
  const margin = first?.[1]?.length ?? 0;
  /** @type {string[][]} */
  const items = [];
  for (const line of block.lines) {
    const item = ITEM.exec(line);
    if (item && (item[1]?.length ?? 0) <= margin + 1) items.push([item[4] ?? ""]);
    else items.at(-1)?.push(line.replace(/^ {1,4}/, ""));
  }
  const start = block.kind === "ol" ? Number.parseInt(first?.[2] ?? "1", 10) : 1;
  const isLoose = block.lines.some((line, index) => !line.trim() && index < block.lines.length - 1);
  return h(
    block.kind === "ol" ? "ol" : "ul",
    block.kind === "ol" && start !== 1 ? { start } : null,
    items.map((lines) => {
      const parts = split(lines);
      const [head, ...rest] = parts;
      if (head?.kind === "p" && !isLoose) {
        return h("li", null, inline(head.lines.map((one) => one.trim()).join("\n"), 0), rest.map((one) => build(one, depth + 1)));
      }
      return h("li", null, parts.map((one) => build(one, depth + 1)));
    }),
  );
}

/** @param {string[]} lines */
function table(lines) {
  const cells = (/** @type {string} */ line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());
  const [head = "", rule = "", ...body] = lines;
  const sides = cells(rule).map((cell) => (/^:-+:$/.test(cell) ? "center" : /-:$/.test(cell) ? "right" : ""));
  const row = (/** @type {string} */ line, /** @type {"td" | "th"} */ tag) =>
    h("tr", null, cells(line).map((cell, index) => h(tag, { class: sides[index] || null, scope: tag === "th" ? "col" : null }, inline(cell, 0))));
  return h(
    "div",
    { class: "table", tabindex: "0", role: "region", "aria-label": t("table") },
    h("table", null, h("thead", null, row(head, "th")), h("tbody", null, body.map((line) => row(line, "td")))),
  );
}

const LINK = /^(?:https?:\/\/|mailto:)[^\s<>"'`\u0000-\u001f]+$/i;
const BARE = /https?:\/\/[^\s<>"'`)\]]+[^\s<>"'`)\].,;:!?]/y;
const NAMED = /!?\[([^\][]{0,500})\]\(\s*<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,200}\))?[^\s()<>]{0,500})>?(?:\s+"[^"]{0,200}")?\s*\)/y;
const ANGLE = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const MARKS = [
  { mark: "**", tag: /** @type {const} */ ("strong") },
  { mark: "__", tag: /** @type {const} */ ("strong") },
  { mark: "~~", tag: /** @type {const} */ ("del") },
  { mark: "*", tag: /** @type {const} */ ("em") },
  { mark: "_", tag: /** @type {const} */ ("em") },
];

/**
 * @param {string} text
 * @param {number} depth
 * @returns {Node[]}
 */
function inline(text, depth) {
  /** @type {Node[]} */
  const out = [];
  let plain = "";
  let at = 0;
  const flush = () => {
    if (plain) {
      plain.split("\n").forEach((part, index) => {
        if (index) out.push(h("br"));
        if (part) out.push(document.createTextNode(part));
      });
    }
    plain = "";
  };
  /** @param {Node} node @param {number} end */
  const put = (node, end) => {
    flush();
    out.push(node);
    at = end;
  };
  /** Marks whose end was looked for and not found: looking again from further on finds none either. @type {Set<string>} */
  const open = new Set();
  while (at < text.length) {
    const sign = text[at] ?? "";
    if (sign === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (sign === "`") {
      const run = /`+/y;
      run.lastIndex = at;
      const mark = run.exec(text)?.[0] ?? "`";
      const end = open.has(mark) ? -1 : text.indexOf(mark, at + mark.length);
      if (end < 0) {
        open.add(mark);
        plain += mark;
        at += mark.length;
      } else {
        const body = text.slice(at + mark.length, end).replace(/\n/g, " ");
        put(h("code", null, /^ .* $/.test(body) ? body.slice(1, -1) : body), end + mark.length);
      }
    } else if (sign === "[" || (sign === "!" && text[at + 1] === "[")) {
      NAMED.lastIndex = at;
      const found = NAMED.exec(text);
      const goal = found?.[2] ?? "";
      if (found && LINK.test(goal)) put(link(goal, depth < MAX_DEPTH ? inline(found[1] || goal, depth + 1) : [found[1] || goal]), at + found[0].length);
      else {
        plain += sign;
        at += 1;
      }
    } else if (sign === "<") {
      ANGLE.lastIndex = at;
      const found = ANGLE.exec(text);
      if (found?.[1] && LINK.test(found[1])) put(link(found[1], [found[1]]), at + found[0].length);
      else {
        plain += sign;
        at += 1;
      }
    } else if (sign === "h" && text.startsWith("http", at) && !/\w/.test(text[at - 1] ?? "")) {
      BARE.lastIndex = at;
      const found = BARE.exec(text);
      if (found && LINK.test(found[0])) put(link(found[0], [found[0]]), at + found[0].length);
      else {
        plain += sign;
        at += 1;
      }
    } else {
      const kind = depth < MAX_DEPTH ? MARKS.find(({ mark }) => text.startsWith(mark, at)) : undefined;
      const end = kind && !open.has(kind.mark) ? closing(text, at, kind.mark) : -1;
      if (kind && end > 0) {
        put(h(kind.tag, null, inline(text.slice(at + kind.mark.length, end), depth + 1)), end + kind.mark.length);
      } else {
        if (kind && end === -2) open.add(kind.mark);
        const taken = kind ? kind.mark : sign;
        plain += taken;
        at += taken.length;
      }
    }
  }
  flush();
  return out;
}

/**
 * Where emphasis that begins at `at` ends; -1: it does not begin here; -2: it ends nowhere.
 * @param {string} text
 * @param {number} at
 * @param {string} mark
 */
function closing(text, at, mark) {
  const after = text[at + mark.length] ?? " ";
  if (/\s/.test(after)) return -1;
  if (mark[0] === "_" && /[\p{L}\p{N}]/u.test(text[at - 1] ?? "")) return -1;
  let end = at + mark.length;
  for (;;) {
    end = text.indexOf(mark, end + 1);
    if (end < 0) return -2;
    const single = mark.length === 1 && (text[end + 1] === mark || text[end - 1] === mark);
    const spaced = /\s/.test(text[end - 1] ?? " ");
    const within = mark[0] === "_" && /[\p{L}\p{N}]/u.test(text[end + mark.length] ?? "");
    if (!single && !spaced && !within) return end;
    if (single && text[end + 1] === mark) end += 1;
  }
}

/**
 * @param {string} goal
 * @param {(Node | string)[]} name
 */
function link(goal, name) {
  return h("a", { href: goal, target: "_blank", rel: "noopener noreferrer nofollow" }, name);
}
