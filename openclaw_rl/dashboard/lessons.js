/** The centre: everything that was said about answers, and what became of each sentence. */

import { call } from "./wire.js";
import { fill, h } from "./dom.js";
import { languageName, number } from "./format.js";
import { Growing } from "./growing.js";
import { t } from "./i18n.js";
import { LessonCard } from "./lesson.js";
import { choice, empty, sayError, told, whose } from "./parts.js";

/** @typedef {import("./app.js").App} App */

const STATES = ["live", "heard", "judged", "learning", "checking", "left_out", "rejected", "taken_back"];
const VERDICTS = ["good", "bad", "neutral", "abstained", "failed", "unjudged"];
const LANGUAGES = ["en", "zh", "other"];

export class LessonsPage {
  /**
   * @param {App} app
   * @param {HTMLElement} place
   */
  constructor(app, place) {
    this.app = app;
    /** @type {Map<string, LessonCard>} */
    this.cards = new Map();
    this.languages = new Set(LANGUAGES);
    this.top = h("div");
    this.left = h("div");
    this.filters = h("div", { class: "filters by-two", role: "search", "aria-label": t("lessons.filters") });
    this.fresh = h("div", { role: "status" });
    this.list = h("div");
    fill(
      place,
      h("div", { class: "page" }, h("header", null, h("h1", null, t("nav.lessons")), h("p", null, t("lessons.text"))), this.top, this.filters, this.left, this.fresh, this.list),
    );
  }

  /**
   * @param {string[]} path
   * @param {URLSearchParams} query
   */
  async go(path, query) {
    this.query = query;
    this.cards.clear();
    this.rows?.close();
    fill(this.fresh);
    const turn = path[0] ?? "";
    this.filters.hidden = turn !== "";
    this.left.hidden = turn !== "";
    if (turn) return this.one(turn);
    fill(this.top);
    this.drawFilters();
    this.drawLeft();
    const asked = { user: this.app.user, session: query.get("session"), language: query.get("language"), verdict: query.get("verdict"), state: query.get("state"), limit: 40 };
    this.rows = new Growing({
      ask: (after) => call("GET /ui/api/lessons", { query: { ...asked, after } }),
      row: (row) => {
        if (row.language && !this.languages.has(row.language)) {
          this.languages.add(row.language);
          this.drawFilters();
        }
        return this.card(row, false).element;
      },
      none: () => (query.size ? empty(t("lessons.no-match"), t("lessons.no-match.text"), h("a", { class: "button", href: "#/lessons" }, t("lessons.all"))) : empty(t("lessons.none"), t("lessons.none.text"), h("a", { class: "button first", href: "#/chat" }, t("lessons.start")))),
    });
    fill(this.list, this.rows.place);
    await this.rows.start();
  }

  /** @param {string} turn */
  async one(turn) {
    fill(this.top, h("p", { class: "filters" }, h("a", { href: "#/lessons" }, `← ${t("lessons.all")}`)));
    fill(this.list);
    try {
      const { row } = await call("GET /ui/api/lessons/{turn}", { path: { turn } });
      fill(this.list, this.card(row, true).element);
    } catch (error) {
      sayError(error);
      fill(this.list, empty(t("lessons.gone"), t("lessons.gone.text"), h("a", { class: "button", href: "#/lessons" }, t("lessons.all"))));
    }
  }

  /**
   * @param {import("./api").LessonRow} row
   * @param {boolean} isOpen
   */
  card(row, isOpen) {
    const isOwn = this.app.me.is_owner || row.user === this.app.me.user;
    const card = new LessonCard(row, { isOpen, isOwn, changed: () => this.drawLeft() });
    this.cards.set(row.turn, card);
    return card;
  }

  drawFilters() {
    const query = this.query ?? new URLSearchParams();
    const set = (/** @type {string} */ name) => (/** @type {string} */ value) => {
      const next = new URLSearchParams(query);
      if (value) next.set(name, value);
      else next.delete(name);
      location.hash = next.size ? `#/lessons?${next}` : "#/lessons";
    };
    const any = /** @type {[string, string]} */ (["", t("filter.any")]);
    const states = STATES.map((one) => /** @type {[string, string]} */ ([one, t(`state.${one}`)]));
    const verdicts = VERDICTS.map((one) => /** @type {[string, string]} */ ([one, t(`verdict.${one}`)]));
    const languages = [...this.languages].map((one) => /** @type {[string, string]} */ ([one, one === "other" ? t("filter.other") : languageName(one)]));
    fill(
      this.filters,
      whose({ me: this.app.me, user: this.app.user, choose: (user) => this.app.choose(user) }),
      choice(t("filter.state"), [any, ...states], query.get("state") ?? "", set("state")),
      choice(t("filter.verdict"), [any, ...verdicts], query.get("verdict") ?? "", set("verdict")),
      choice(t("filter.language"), [any, ...languages], query.get("language") ?? "", set("language")),
      query.size ? h("a", { class: "quiet", href: "#/lessons" }, t("filter.clear")) : null,
    );
  }

  async drawLeft() {
    try {
      const { items } = await call("GET /ui/api/left-out", { query: { user: this.app.user } });
      const n = items.reduce((sum, one) => sum + one.num_turns, 0);
      const open = this.left.querySelector("details")?.open ?? false;
      const rows = items.map((one) =>
        h(
          "tr",
          null,
          h("td", { class: "num right" }, number(one.num_turns)),
          h("td", null, told(`left-out.${one.reason}`, one.words)),
          h("td", { class: "soft" }, told(`left-out.${one.reason}.remedy`, one.remedy) || t("left-out.nothing")),
        ),
      );
      const head = h("tr", null, h("th", { scope: "col", class: "right" }, t("left-out.how-many")), h("th", { scope: "col" }, t("left-out.why")), h("th", { scope: "col" }, t("left-out.change")));
      fill(
        this.left,
        n ? h("details", { class: "card left", open }, h("summary", null, t("left-out.sum", { n: n })), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("left-out.label") }, h("table", null, h("thead", null, head), h("tbody", null, rows)))) : null,
      );
    } catch (error) {
      sayError(error);
    }
  }

  /** @param {import("./live.js").Live} event */
  heard(event) {
    if (event.event !== "correction" || event.user !== this.app.user) return;
    const card = this.cards.get(event.correction.turn);
    if (card) card.correct(event.correction);
    else if (this.rows) {
      fill(this.fresh, h("button", { type: "button", class: "button small fresh", onclick: () => { fill(this.fresh); this.cards.clear(); this.rows?.start(); } }, t("lessons.fresh")));
    }
  }

  back() {
    for (const card of this.cards.values()) if (card.isOpen) card.load();
  }

  leave() {
    this.rows?.close();
  }
}
