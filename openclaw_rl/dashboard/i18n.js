/**
 * Words of the page in the reader's language, from `i18n/xx.json`. A text that a language lacks stands in English; a
 * language is added by a file alone, as the server lists what is there.
 */

import { h } from "./dom.js";

/** @type {Record<string, string>} */
let words = {};
/** @type {Record<string, string>} */
let english = {};
let current = "en";
let plurals = new Intl.PluralRules("en");

export function language() {
  return current;
}

/**
 * Reads the files; an unknown language is English.
 * @param {string} wanted
 */
export async function speak(wanted) {
  english = Object.keys(english).length ? english : await read("en");
  try {
    words = wanted === "en" ? english : await read(wanted);
    current = wanted;
  } catch {
    words = english;
    current = "en";
  }
  plurals = new Intl.PluralRules(current);
  document.documentElement.lang = current;
}

/**
 * @param {string} name
 * @returns {Promise<Record<string, string>>}
 */
async function read(name) {
  const answer = await fetch(new URL(`i18n/${encodeURIComponent(name)}.json`, import.meta.url));
  if (!answer.ok) throw new Error(`there is no file of words for ${name}`);
  return answer.json();
}

/**
 * The text of a key. `{name}` is replaced by what is given; a text for one and one for more stand under `key.one` and
 * `key.other`, chosen by `n`.
 * @param {string} key
 * @param {Record<string, string | number>} [given]
 * @returns {string}
 */
export function t(key, given) {
  const text = raw(key, given);
  return given ? text.replace(/\{(\w+)\}/g, (whole, name) => (name in given ? String(given[name]) : whole)) : text;
}

/**
 * The same with nodes in the places of its names.
 * @param {string} key
 * @param {Record<string, Node | string | number>} given
 * @returns {(Node | string)[]}
 */
export function parts(key, given) {
  return raw(key, given)
    .split(/(\{\w+\})/)
    .map((part) => {
      const name = /^\{(\w+)\}$/.exec(part)?.[1];
      const value = name === undefined ? undefined : given[name];
      return value === undefined ? part : value instanceof Node ? value : String(value);
    })
    .filter((part) => part !== "");
}

/** @param {string} key */
export function has(key) {
  return key in words || key in english;
}

/**
 * @param {string} key
 * @param {Record<string, unknown>} [given]
 */
function raw(key, given) {
  const n = given?.["n"];
  const keys = typeof n === "number" ? [`${key}.${plurals.select(n)}`, `${key}.other`, key] : [key];
  for (const from of [words, english]) for (const one of keys) if (one in from) return from[one] ?? key;
  return key;
}

/**
 * A word of the trade with what it means, on hover and on focus.
 * @param {string} text
 * @param {string} meaning
 */
export function term(text, meaning) {
  return h("abbr", { class: "term", title: meaning, tabindex: "0" }, text);
}
