/** Figures and times as people of a language write them. */

import { h } from "./dom.js";
import { language, t } from "./i18n.js";

/**
 * @param {number} value
 * @param {number} [digits]
 */
export function number(value, digits = 0) {
  return new Intl.NumberFormat(language(), { maximumFractionDigits: digits }).format(value);
}

/**
 * Three digits that say something, however large or small it is.
 * @param {number} value
 */
export function figure(value) {
  return new Intl.NumberFormat(language(), { maximumSignificantDigits: 3 }).format(value);
}

/** @param {number} share */
export function percent(share) {
  const digits = share > 0 && share < 0.01 ? 2 : share < 0.1 ? 1 : 0;
  return new Intl.NumberFormat(language(), { style: "percent", maximumFractionDigits: digits }).format(share);
}

/** @param {number} bytes */
export function size(bytes) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3));
  const style = { style: /** @type {const} */ ("unit"), unit: units[power] ?? "byte", maximumSignificantDigits: 3 };
  return new Intl.NumberFormat(language(), style).format(bytes / 1000 ** power);
}

/** @param {number} seconds */
export function duration(seconds) {
  const write = (/** @type {number} */ value, /** @type {string} */ unit, digits = 0) =>
    new Intl.NumberFormat(language(), { style: "unit", unit, unitDisplay: "short", maximumFractionDigits: digits }).format(value);
  if (seconds < 0.95) return write(Math.max(0, seconds), "second", 1);
  if (seconds < 10) return write(seconds, "second", 1);
  if (seconds < 60) return write(Math.round(seconds), "second");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    const rest = Math.round(seconds % 60);
    return rest && minutes < 10 ? `${write(minutes, "minute")} ${write(rest, "second")}` : write(minutes, "minute");
  }
  if (minutes < 60 * 48) {
    const rest = minutes % 60;
    return rest ? `${write(Math.floor(minutes / 60), "hour")} ${write(rest, "minute")}` : write(minutes / 60, "hour");
  }
  return write(Math.floor(minutes / 1440), "day");
}

/**
 * When that was, as a person says it.
 * @param {number} at
 * @param {number} [now]
 */
export function ago(at, now = Date.now() / 1000) {
  const seconds = now - at;
  if (seconds < 45) return t("just-now");
  const words = new Intl.RelativeTimeFormat(language(), { numeric: "auto", style: "short" });
  if (seconds < 3600) return words.format(-Math.max(1, Math.round(seconds / 60)), "minute");
  if (seconds < 86_400) return words.format(-Math.round(seconds / 3600), "hour");
  if (seconds < 86_400 * 7) return words.format(-Math.round(seconds / 86_400), "day");
  return new Intl.DateTimeFormat(language(), { dateStyle: "medium" }).format(at * 1000);
}

/**
 * A time that goes on: the page writes it anew as it grows older.
 * @param {number} at
 */
export function when(at) {
  const date = new Date(at * 1000);
  const title = new Intl.DateTimeFormat(language(), { dateStyle: "long", timeStyle: "medium" }).format(date);
  return h("time", { datetime: date.toISOString(), title, "data-at": at }, ago(at));
}

/** All times on the page, by the clock. */
export function rewriteTimes() {
  for (const each of document.querySelectorAll("time[data-at]")) {
    const text = ago(Number(/** @type {HTMLElement} */ (each).dataset["at"]));
    if (each.textContent !== text) each.textContent = text;
  }
}

/** @param {number} at */
export function dayOf(at) {
  const date = new Date(at * 1000);
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(date).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days <= 1) return new Intl.RelativeTimeFormat(language(), { numeric: "auto" }).format(-Math.max(0, days), "day");
  if (days < 7) return new Intl.DateTimeFormat(language(), { weekday: "long" }).format(date);
  return new Intl.DateTimeFormat(language(), { month: "long", year: "numeric" }).format(date);
}

/** @param {string} code */
export function languageName(code) {
  try {
    return new Intl.DisplayNames(language(), { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}
