/** Tokens of an answer: which way each was moved, and how likely it was before and after, on hover and on focus. */

import { fill, h } from "./dom.js";
import { percent } from "./format.js";
import { t } from "./i18n.js";

/** @typedef {import("./api").TokenTold} TokenTold */

const MANY = 130;
const FAINT = 0.02;
/** A probability that moved by less than this keeps its line, and loses its ground. */
/** @type {Record<string, string>} */
const CLASSES = { up: "up", down: "down", hint: "hint", none: "still" };

/** @type {HTMLElement | null} */
let tip = null;

/**
 * @param {TokenTold[]} tokens
 * @param {string} label
 */
export function tokensOf(tokens, label) {
  const place = h("div", { class: "tokens", role: "group", "aria-label": label });
  let at = -1;
  tokens.forEach((token, index) => {
    const isFaint = token.before !== null && token.after !== null && Math.abs(token.after - token.before) < FAINT;
    const it = h("span", { class: `tok ${CLASSES[token.way] ?? "still"} ${isFaint ? "faint" : ""}`, "data-index": index, tabindex: index ? "-1" : "0", role: "img", "aria-label": spoken(token) }, isControl(token) ? "◼" : token.text);
    place.append(it);
  });
  const show = (/** @type {Event} */ event) => {
    const it = /** @type {Element} */ (event.target).closest?.(".tok");
    if (!(it instanceof HTMLElement) || !place.contains(it)) return hideTip();
    const token = tokens[Number(it.dataset["index"])];
    if (token) showTip(it, token);
  };
  place.addEventListener("mouseover", show);
  place.addEventListener("focusin", (event) => {
    at = Number(/** @type {HTMLElement} */ (event.target).dataset["index"]);
    show(event);
  });
  place.addEventListener("mouseleave", hideTip);
  place.addEventListener("focusout", hideTip);
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hideTip();
    if (step === undefined) return;
    event.preventDefault();
    const next = place.children[at + step];
    if (!(next instanceof HTMLElement)) return;
    place.children[at]?.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
  return place;
}

/** Such as <|im_end|>: a sign of the model's, and no word. @param {TokenTold} token */
function isControl(token) {
  return /^<\|.*\|>$/.test(token.text);
}

/**
 * A long answer shows its beginning, until somebody asks for the rest or walks into it.
 * @param {TokenTold[]} tokens
 * @param {string} label
 */
export function someTokens(tokens, label) {
  const place = tokensOf(tokens, label);
  if (tokens.length <= MANY) return place;
  place.classList.add("cut");
  const all = h("button", { type: "button", class: "quiet", onclick: () => open() }, t("lesson.whole"));
  const open = () => {
    place.classList.remove("cut");
    all.remove();
  };
  place.addEventListener("keydown", open, { once: true });
  return [place, all];
}

/** @param {TokenTold} token */
function spoken(token) {
  const name = isControl(token) ? t("token.end") : token.text.trim() || t("token.space");
  const way = t(`token.${token.way}`);
  if (token.before === null || token.after === null) return `${name}, ${way}`;
  return `${name}, ${way}, ${t("token.from-to", { before: percent(token.before), after: percent(token.after) })}`;
}

/**
 * @param {HTMLElement} it
 * @param {TokenTold} token
 */
function showTip(it, token) {
  hideTip();
  const rows =
    token.before === null || token.after === null
      ? h("div", null, t("token.unknown"))
      : h("div", { class: "pair" }, bar(t("token.before"), token.before), bar(t("token.after"), token.after));
  tip = h("div", { id: "tip", "aria-hidden": "true" }, h("div", null, t(`token.${token.way}`)), rows);
  document.body.append(tip);
  const box = it.getClientRects()[0] ?? it.getBoundingClientRect();
  const size = tip.getBoundingClientRect();
  const above = box.top - size.height - 8;
  tip.style.setProperty("top", `${above > 4 ? above : box.bottom + 8}px`);
  tip.style.setProperty("left", `${Math.max(8, Math.min(innerWidth - size.width - 8, box.left))}px`);
}

export function hideTip() {
  tip?.remove();
  tip = null;
}

/**
 * @param {string} name
 * @param {number} share
 */
function bar(name, share) {
  const inner = h("i");
  inner.style.setProperty("width", `${share * 100}%`);
  return [h("span", null, name), h("span", { class: "track" }, inner), h("span", { class: "num" }, percent(share))];
}

/** What colours and lines mean. @param {TokenTold[]} tokens */
export function legend(tokens) {
  const ways = ["up", "down", "hint"].filter((way) => tokens.some((token) => token.way === way));
  const place = h("div", { class: "legend" });
  fill(
    place,
    ways.map((way) => h("span", null, h("span", { class: "tokens", "aria-hidden": "true" }, h("span", { class: `tok ${CLASSES[way]}` }, t("token.word"))), t(`token.${way}`))),
  );
  return place;
}
