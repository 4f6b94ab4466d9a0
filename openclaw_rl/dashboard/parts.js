/** What pages share: buttons, chips, questions in a dialog, what is said for a moment, lists that grow as one scrolls. */

import { Refused } from "./wire.js";
import { fill, h, the } from "./dom.js";
import { icon } from "./icons.js";
import { has, language, t } from "./i18n.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * What the server says in English, in another language where its file has words for it.
 * @param {string} key
 * @param {string} words
 */
export function told(key, words) {
  return language() !== "en" && has(`told.${key}`) ? t(`told.${key}`) : words;
}

/**
 * A sentence of the server that is always the same, in the reader's language; any other as it is.
 * @param {string} words
 */
export function known(words) {
  return told(`said.${words}`, words);
}

/**
 * A measure of the check by the page's own name for it, else by the server's.
 * @param {{ name: string, words: string }} one
 */
export function measureName(one) {
  return has(`measure.${one.name}`) ? t(`measure.${one.name}`) : one.words || one.name;
}

/**
 * @param {string} text
 * @param {{ onclick?: (event: Event) => unknown, icon?: string, class?: string, title?: string, disabled?: boolean, pressed?: boolean }} [given]
 */
export function button(text, given = {}) {
  return h(
    "button",
    {
      type: "button",
      class: given.class ?? "button",
      title: given.title,
      disabled: given.disabled,
      "aria-pressed": given.pressed === undefined ? null : String(given.pressed),
      onclick: given.onclick,
    },
    given.icon ? icon(given.icon) : null,
    given.icon && !text ? null : h("span", null, text),
  );
}

/**
 * A button that is an icon; its words are its name.
 * @param {string} name
 * @param {string} words
 * @param {(event: Event) => unknown} onclick
 * @param {{ pressed?: boolean, class?: string, disabled?: boolean }} [given]
 */
export function iconButton(name, words, onclick, given = {}) {
  return h(
    "button",
    {
      type: "button",
      class: given.class ?? "quiet",
      title: words,
      "aria-label": words,
      disabled: given.disabled,
      "aria-pressed": given.pressed === undefined ? null : String(given.pressed),
      onclick,
    },
    icon(name),
  );
}

/**
 * @param {string} text
 * @param {string} [kind]
 * @param {string} [drawing]
 */
export function chip(text, kind = "", drawing = "") {
  return h("span", { class: `chip ${kind}` }, drawing ? icon(drawing) : null, text);
}

/**
 * @param {string} version
 * @param {string} [user]
 */
export function versionLink(version, user) {
  const query = user ? `?user=${encodeURIComponent(user)}` : "";
  return h("a", { class: "chip accent", href: `#/versions/${encodeURIComponent(version)}${query}`, title: t("version.open", { version }) }, version);
}

/**
 * Says something for a moment, and to screen readers.
 * @param {string} text
 * @param {boolean} [isBad]
 */
export function toast(text, isBad = false) {
  const place = the("#toast");
  const close = iconButton("cross", t("close"), () => one.remove(), { class: "" });
  const one = h("div", { class: isBad ? "toast bad" : "toast" }, h("span", null, text), close);
  place.append(one);
  while (place.children.length > 3) place.firstElementChild?.remove();
  setTimeout(() => one.remove(), isBad ? 12_000 : 6_000);
}

/**
 * Says it to screen readers alone.
 * @param {string} text
 */
export function speak(text) {
  the("#speech").textContent = text;
}

/** @param {unknown} error */
export function sayError(error) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  const words = errorWords(error);
  if (words) toast(words, true);
}

/**
 * In words; empty where the banner says it already.
 * @param {unknown} error
 */
export function errorWords(error) {
  if (error instanceof Refused) return error.isGone || error.status === 401 ? "" : error.message;
  console.error(error);
  return t("unexpected");
}

/**
 * Disables a button for as long as something takes; says what went wrong.
 * @param {Event} event
 * @param {() => Promise<unknown>} work
 */
export async function busy(event, work) {
  const it = event.currentTarget;
  if (it instanceof HTMLButtonElement) it.disabled = true;
  try {
    await work();
  } catch (error) {
    sayError(error);
  } finally {
    if (it instanceof HTMLButtonElement) it.disabled = false;
  }
}

/**
 * A question in a dialog; the answer is what stands in its field, or null where it was left.
 * @param {{ title: string, text?: Child, yes: string, field?: { label: string, value?: string, long?: boolean, must?: string }, isDanger?: boolean }} given
 * @returns {Promise<string | null>}
 */
export function ask(given) {
  return new Promise((resolve) => {
    const field = given.field;
    /** @type {HTMLInputElement | HTMLTextAreaElement | null} */
    let input = null;
    if (field) input = field.long ? h("textarea", { value: field.value ?? "", maxlength: 4000 }) : h("input", { value: field.value ?? "", autocomplete: "off" });
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" });
    const yes = h("button", { class: given.isDanger ? "button danger" : "button first", type: "submit" }, given.yes);
    const check = () => {
      if (field) yes.disabled = field.must === undefined ? !input?.value.trim() : input?.value.trim() !== field.must;
    };
    input?.addEventListener("input", check);
    check();
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, given.title),
      given.text ? h("div", { class: "prose" }, given.text) : null,
      field ? h("label", { class: "field" }, h("span", { class: "soft" }, field.label), input) : null,
      h("div", { class: "row" }, button(t("cancel"), { onclick: () => dialog.close() }), yes),
    );
    dialog.append(form);
    let answer = /** @type {string | null} */ (null);
    form.addEventListener("submit", () => {
      answer = input ? input.value.trim() : "";
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
    input?.focus();
  });
}

/**
 * Something to be typed elsewhere, with a button that copies it.
 * @param {string} text
 */
export function command(text) {
  const copy = iconButton("copy", t("copy"), async () => {
    await navigator.clipboard.writeText(text);
    toast(t("copied"));
  });
  return h("div", { class: "command" }, h("code", { tabindex: "0" }, text), copy);
}

/**
 * @param {string} title
 * @param {string} text
 * @param {...Child} rest
 */
export function empty(title, text, ...rest) {
  return h("div", { class: "empty" }, h("h2", null, title), h("p", null, text), ...rest);
}

export function loading() {
  return h("p", { class: "loading", role: "status" }, t("loading"));
}

/**
 * @param {[string, Child][]} rows
 */
export function facts(rows) {
  return h("dl", { class: "facts" }, rows.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/**
 * @param {string} label
 * @param {[string, string][]} options
 * @param {string} value
 * @param {(value: string) => void} onchange
 */
export function choice(label, options, value, onchange) {
  const select = h("select", { "aria-label": label, onchange: () => onchange(select.value) }, options.map(([one, text]) => h("option", { value: one }, text)));
  select.value = value;
  return h("label", { class: "field" }, h("span", { class: "soft" }, label), select);
}

/**
 * Whose line is looked at: only somebody who may see several is asked.
 * @param {{ me: import("./api").Me, user: string, choose: (user: string) => void }} given
 */
export function whose({ me, user, choose }) {
  if (me.users.length < 2) return null;
  return choice(t("whose"), me.users.map((one) => [one, one === me.user ? t("yours", { user: one }) : one]), user, choose);
}

/**
 * A place that shows what a question comes to: "loading" first, and the remedy where there is no answer.
 * @param {Element} place
 * @param {() => Promise<Child>} work
 */
export async function within(place, work) {
  if (!place.childNodes.length) fill(place, loading());
  try {
    const found = await work();
    fill(place, found);
  } catch (error) {
    const words = errorWords(error);
    fill(place, empty(t("failed.title"), words || t("failed.gone"), button(t("try-again"), { onclick: () => within(place, work) })));
  }
}
