/** Settings as they are, with where each comes from and how to change it; and what belongs to the person: their data. */

import { address, call } from "./wire.js";
import { fill, h } from "./dom.js";
import { number } from "./format.js";
import { icon } from "./icons.js";
import { language, speak as speakLanguage, t } from "./i18n.js";
import { ask, busy, button, chip, choice, command, facts, told, sayError, toast, whose, within } from "./parts.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./api").SettingRow} SettingRow */

const THEMES = ["auto", "light", "dark"];

/** The switch for the theme, and the languages. @param {import("./api").Me} me */
export function appearance(me) {
  const theme = localStorage.getItem("theme") ?? "auto";
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto";
  const icons = { auto: "auto", light: "sun", dark: "moon" };
  const words = t("theme.switch", { now: t(`theme.${theme}`), next: t(`theme.${next}`) });
  const place = h("div", { class: "switches" });
  addEventListener("themed", () => place.replaceWith(appearance(me)), { once: true });
  const toggle = h("button", { type: "button", class: "quiet", title: words, "aria-label": words, onclick: () => setTheme(next) }, icon(icons[/** @type {keyof typeof icons} */ (theme)] ?? "auto"));
  fill(place, toggle, languages(me));
  return place;
}

/** @param {string} theme */
function setTheme(theme) {
  if (theme === "auto") {
    localStorage.removeItem("theme");
    delete document.documentElement.dataset["theme"];
  } else {
    localStorage.setItem("theme", theme);
    document.documentElement.dataset["theme"] = theme;
  }
  dispatchEvent(new Event("themed"));
}

/** @param {import("./api").Me} me */
function languages(me) {
  const options = languagesOf(me).map(([code, name]) => h("option", { value: code, lang: code }, name));
  const select = h("select", { "aria-label": t("language"), onchange: () => changeLanguage(select.value) }, options);
  select.value = language();
  return select;
}

/**
 * Each by its own name.
 * @param {import("./api").Me} me
 * @returns {[string, string][]}
 */
function languagesOf(me) {
  return me.languages.map((code) => [code, new Intl.DisplayNames(code, { type: "language" }).of(code) ?? code]);
}

/** @param {string} code */
async function changeLanguage(code) {
  localStorage.setItem("language", code);
  await speakLanguage(code);
  dispatchEvent(new Event("reword"));
}

export class SettingsPage {
  /**
   * @param {App} app
   * @param {HTMLElement} place
   */
  constructor(app, place) {
    this.app = app;
    this.data = h("div");
    this.settings = h("div");
    this.rows = h("div");
    /** @type {SettingRow[]} */
    this.all = [];
    const look = h(
      "div",
      { class: "card filters" },
      choice(t("theme"), THEMES.map((one) => [one, t(`theme.${one}`)]), localStorage.getItem("theme") ?? "auto", setTheme),
      choice(t("language"), languagesOf(app.me), language(), (code) => changeLanguage(code)),
    );
    fill(
      place,
      h(
        "div",
        { class: "page" },
        h("header", null, h("h1", null, t("nav.settings")), h("p", null, t("settings.text"))),
        h("section", null, h("h2", { class: "unseen" }, t("settings.look")), look),
        h("section", { class: "section" }, h("h2", null, t("data.title")), h("p", null, t("data.text")), h("div", { class: "filters" }, whose({ me: app.me, user: app.user, choose: (user) => app.choose(user) })), this.data),
        app.me.is_owner ? h("section", { class: "section" }, h("h2", null, t("settings.title")), h("p", null, t("settings.how")), this.settings) : null,
        h("section", { class: "section row apart" }, h("p", { class: "soft small" }, t("settings.about", { user: app.me.user, release: app.me.release })), button(t("sign-out"), { class: "button small", onclick: (event) => busy(event, () => this.signOut()) })),
      ),
    );
  }

  async go() {
    within(this.data, async () => this.drawData(await call("GET /ui/api/data", { query: { user: this.app.user } })));
    if (!this.app.me.is_owner) return;
    await within(this.settings, async () => {
      this.all = (await call("GET /ui/api/settings")).items;
      const field = h("input", { type: "search", placeholder: t("settings.search"), "aria-label": t("settings.search") });
      const changed = h("input", { type: "checkbox" });
      const show = () => this.drawRows(field.value, changed.checked);
      field.addEventListener("input", show);
      changed.addEventListener("change", show);
      show();
      return [h("div", { class: "row filters" }, field, h("label", { class: "row small" }, changed, t("settings.changed"))), this.rows];
    });
  }

  /** @param {import("./api").YourData} found */
  drawData(found) {
    const isOwn = found.user === this.app.me.user;
    const kept = found.retention_days === null ? t("data.for-ever") : t("data.days", { n: found.retention_days });
    const how = this.app.me.is_owner && found.retention_command ? h("details", { class: "small" }, h("summary", null, t("settings.change")), command(found.retention_command)) : null;
    return h(
      "div",
      { class: "card" },
      facts([
        [t("data.kept"), t("data.counts", { sessions: number(found.num_sessions), turns: number(found.num_turns), versions: number(found.num_versions) })],
        [t("data.retention"), [h("div", null, kept), how]],
        [t("data.redacts"), found.redacts ? t("data.redacts.yes") : t("data.redacts.no")],
      ]),
      h(
        "div",
        { class: "row actions" },
        h("a", { class: "button", href: address("GET /ui/api/data/export", {}, { user: found.user }), download: `${found.user}.jsonl` }, icon("download"), t("data.export")),
        button(isOwn ? t("data.forget") : t("data.forget.other", { user: found.user }), { class: "button danger", icon: "trash", onclick: (event) => busy(event, () => this.forget(found.user)) }),
      ),
    );
  }

  /** @param {string} user */
  async forget(user) {
    const confirm = await ask({ title: t("data.forget.ask", { user }), text: h("p", null, t("data.forget.text")), yes: t("forget.yes"), field: { label: t("data.forget.type", { user }), must: user }, isDanger: true });
    if (confirm === null) return;
    const found = await call("POST /ui/api/data/forget", { query: { user }, body: { everything: true, confirm } });
    toast(found.words);
    await this.app.refresh();
    await this.go();
  }

  /**
   * @param {string} search
   * @param {boolean} isChanged
   */
  drawRows(search, isChanged) {
    const wanted = search.trim().toLowerCase();
    const found = this.all.filter((row) => (!isChanged || row.origin !== "default") && (!wanted || `${row.key} ${row.words}`.toLowerCase().includes(wanted)));
    /** @type {Map<string, SettingRow[]>} */
    const sections = new Map();
    for (const row of found) {
      const name = row.key.split(".")[0] ?? "";
      sections.set(name, [...(sections.get(name) ?? []), row]);
    }
    const isOpen = wanted !== "" || isChanged;
    fill(
      this.rows,
      found.length
        ? [...sections].map(([name, rows]) => h("details", { class: "card", open: isOpen }, h("summary", null, h("b", null, told(`section.${name}`, name)), " ", h("span", { class: "soft small" }, t("settings.count", { n: rows.length }))), rows.map(setting)))
        : h("p", { class: "soft" }, t("settings.none")),
    );
  }

  async signOut() {
    await call("POST /ui/api/sign-out");
    location.hash = "#/chat";
    location.reload();
  }

  heard() {}

  back() {
    return this.go().catch(sayError);
  }

  leave() {}
}

/** @param {SettingRow} row */
function setting(row) {
  return h(
    "div",
    { class: "setting" },
    h("code", null, row.key),
    h("div", { class: "value" }, h("code", null, row.value), row.origin === "default" ? null : " ", row.origin === "default" ? null : chip(row.origin, "accent")),
    h("p", { class: "doc" }, row.words, row.origin === "default" ? null : ` ${t("settings.default", { value: row.default })}`),
    h("details", { class: "small" }, h("summary", null, t("settings.change")), command(row.command)),
  );
}
