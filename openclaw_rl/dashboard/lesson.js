/** One lesson: sentence -> verdict -> wish -> answer with its tokens -> example -> version, and what one can do about it. */

import { call } from "./wire.js";
import { fill, h } from "./dom.js";
import { when } from "./format.js";
import { has, t } from "./i18n.js";
import { isMoving, leftOut, reasonWords, stateOf, stateWords, verdictChip, wayOf } from "./journey.js";
import { markdown } from "./markdown.js";
import { ask, busy, button, chip, errorWords, loading, toast, versionLink, within } from "./parts.js";
import { legend, someTokens } from "./tokens.js";

/** @typedef {import("./api").LessonRow} LessonRow */
/** @typedef {import("./api").LessonDetail} LessonDetail */
/** @typedef {import("./api").SampleTold} SampleTold */

/**
 * A lesson in the list; it opens in its place.
 */
export class LessonCard {
  /**
   * @param {LessonRow} row
   * @param {{ isOpen?: boolean, isOwn: boolean, changed: () => void }} given
   */
  constructor(row, given) {
    this.row = row;
    this.given = given;
    this.body = h("div", { class: "lesson-body" });
    this.head = h("div", { class: "head" });
    this.element = h("article", { class: "card lesson", "data-turn": row.turn });
    this.isOpen = false;
    fill(this.element, this.head, this.body);
    this.body.hidden = true;
    this.drawHead();
    if (given.isOpen) this.open();
  }

  drawHead() {
    const { row } = this;
    const toggle = h(
      "button",
      { type: "button", class: "lesson-open quote said", "aria-expanded": String(this.isOpen), onclick: () => (this.isOpen ? this.close() : this.open()) },
      row.sentence || t("lesson.thumb"),
    );
    fill(
      this.head,
      h("h2", { class: "lesson-title" }, toggle),
      h("div", { class: "row small soft" }, stateOf(row.state, row.version), verdictChip(row.verdict), when(row.at)),
    );
  }

  async open() {
    this.isOpen = true;
    this.element.dataset["stay"] = "";
    this.body.hidden = false;
    this.drawHead();
    this.head.querySelector("button")?.focus({ preventScroll: true });
    await this.load();
  }

  close() {
    this.isOpen = false;
    delete this.element.dataset["stay"];
    this.body.hidden = true;
    this.drawHead();
    this.head.querySelector("button")?.focus({ preventScroll: true });
  }

  async load() {
    await within(this.body, async () => {
      const detail = await call("GET /ui/api/lessons/{turn}", { path: { turn: this.row.turn } });
      this.row = detail.row;
      return this.draw(detail);
    });
  }

  /** Something became of it. @param {import("./api").Correction} correction */
  correct(correction) {
    this.row = { ...this.row, state: correction.state, words: correction.words, verdict: correction.verdict, version: correction.version, hint: correction.hints[0] ?? this.row.hint };
    this.drawHead();
    if (this.isOpen) this.load();
  }

  /** @param {LessonDetail} detail */
  draw(detail) {
    const { correction } = detail;
    const step = (/** @type {string} */ name, /** @type {import("./dom.js").Child[]} */ ...body) =>
      h("li", null, h("div", { class: "what" }, t(`lesson.${name}`)), h("div", { class: "body" }, ...body));
    const own = detail.samples.find((sample) => sample.kind === "turn");
    const examples = detail.samples.filter((sample) => sample !== own && sample.kind !== "anchor");
    const question = detail.asked.findLast((said) => said.role === "user")?.text ?? "";
    const steps = [
      step(
        "asked",
        h("p", { class: "said clamp" }, question || t("lesson.no-question")),
        detail.followed.some((said) => said.role === "tool") ? h("p", { class: "soft small" }, t("lesson.by-tool")) : null,
        h("a", { class: "small", href: `#/chat/${encodeURIComponent(detail.row.session)}` }, t("lesson.conversation")),
      ),
      step("verdict", verdictChip(correction.verdict), detail.row.judge ? h("p", { class: "small" }, t("lesson.by", { judge: has(`judge.${detail.row.judge}`) ? t(`judge.${detail.row.judge}`) : detail.row.judge })) : null, detail.reason ? h("p", { class: "small soft" }, reasonWords(detail.reason)) : null, this.votes(detail)),
      detail.hints.length ? step("hint", detail.hints.map((hint) => h("p", { class: "said" }, `“${hint}”`))) : null,
      step("answer", this.answer(detail, own)),
      examples.length ? step("example", h("p", { class: "soft small" }, t("lesson.example.text")), examples.map((sample) => this.sample(sample))) : null,
      step("version", this.uses(detail)),
    ];
    return [wayOf(correction), h("ol", { class: "steps" }, steps), this.actions(detail)];
  }

  /**
   * @param {LessonDetail} detail
   * @param {SampleTold | undefined} own
   */
  answer(detail, own) {
    if (!own || !own.tokens.length) return markdown(detail.answer.text);
    const place = h("div", { class: "asked" }, this.sample(own));
    if (own.tokens.every((token) => token.before === null) && detail.row.version) this.probabilities(place, detail, own);
    return place;
  }

  /** @param {SampleTold} sample */
  sample(sample) {
    if (!sample.tokens.length) return h("p", { class: "said" }, sample.text);
    return h("div", { class: "asked" }, someTokens(sample.tokens, t(`lesson.tokens.${sample.kind}`)), legend(sample.tokens));
  }

  /**
   * @param {HTMLElement} place
   * @param {LessonDetail} detail
   * @param {SampleTold} own
   */
  async probabilities(place, detail, own) {
    const state = h("p", { class: "soft small", role: "status" }, t("lesson.measuring"));
    place.append(state);
    try {
      const found = await call("GET /ui/api/lessons/{turn}/tokens", { path: { turn: detail.row.turn } });
      const sample = found.samples.find((one) => one.id === own.id);
      if (sample && !found.probabilities) fill(place, this.sample(sample), h("p", { class: "soft small" }, t("lesson.measured", { version: found.version ?? "" })));
      else fill(state, found.probabilities);
    } catch (error) {
      fill(state, errorWords(error));
    }
  }

  /** @param {LessonDetail} detail */
  votes(detail) {
    if (!detail.reason && !detail.votes.length) return null;
    const rows = detail.votes.map((vote) => h("li", null, h("b", null, `${t(`vote.${vote.question}`)}: ${vote.answer}`), vote.words ? ` · ${vote.words}` : ""));
    return h("details", { class: "small" }, h("summary", null, t("lesson.why")), h("div", { class: "prose soft" }, h("p", { class: "said" }, detail.reason), rows.length ? h("ul", null, rows) : null, detail.judged_by ? h("p", null, detail.judged_by) : null));
  }

  /** @param {LessonDetail} detail */
  uses(detail) {
    const { correction } = detail;
    if (correction.left_out) return leftOut(correction.left_out);
    const rows = detail.uses.map((use) =>
      h(
        "div",
        { class: "row small" },
        use.version ? versionLink(use.version, detail.row.user) : chip(t("lesson.step", { n: use.step })),
        h("span", null, t(use.is_replay ? "lesson.repeated" : "lesson.learned")),
        use.answers ? chip(t("version.answers"), "good", "check") : chip(t(`version.state.${use.state.replaceAll(" ", "_")}`)),
      ),
    );
    if (rows.length) return rows;
    return h("p", { class: "soft" }, isMoving(correction) ? t("lesson.waits") : stateWords(correction.state, correction.version));
  }

  /** @param {LessonDetail} detail */
  actions(detail) {
    const can = new Set(this.given.isOwn ? detail.actions : []);
    const path = { turn: detail.row.turn };
    const done = (/** @type {string} */ words) => {
      toast(words);
      this.given.changed();
      return this.load().then(() => this.drawHead());
    };
    return h(
      "div",
      { class: "actions", role: "group", "aria-label": t("lesson.actions") },
      can.has("accept") && button(t("lesson.accept"), { class: "button small", icon: "check", title: t("lesson.accept.title"), onclick: (event) => busy(event, async () => { await call("POST /ui/api/lessons/{turn}/accept", { path }); await done(t("lesson.accepted")); }) }),
      can.has("hint") && button(t("lesson.edit-hint"), { class: "button small", icon: "edit", onclick: (event) => busy(event, () => this.editHint(detail, done)) }),
      can.has("reject") && button(t("lesson.reject"), { class: "button small", icon: "cross", title: t("lesson.reject.title"), onclick: (event) => busy(event, () => this.takeBack("reject", path, done)) }),
      can.has("undo") && button(t("lesson.undo"), { class: "button small", icon: "undo", onclick: (event) => busy(event, () => this.takeBack("undo", path, done)) }),
      can.has("forget") && button(t("lesson.forget"), { class: "button small danger", icon: "trash", onclick: (event) => busy(event, () => this.forget(detail)) }),
    );
  }

  /**
   * @param {LessonDetail} detail
   * @param {(words: string) => Promise<void>} done
   */
  async editHint(detail, done) {
    const hint = await ask({ title: t("lesson.edit-hint"), text: h("p", { class: "soft" }, t("lesson.edit-hint.text")), yes: t("lesson.edit-hint.yes"), field: { label: t("lesson.hint"), value: detail.row.hint, long: true } });
    if (hint === null) return;
    await call("POST /ui/api/lessons/{turn}/hint", { path: { turn: detail.row.turn }, body: { hint } });
    await done(t("lesson.hint-changed"));
  }

  /**
   * @param {"reject" | "undo"} what
   * @param {{ turn: string }} path
   * @param {(words: string) => Promise<void>} done
   */
  async takeBack(what, path, done) {
    const yes = await ask({ title: t(`lesson.${what}.ask`), text: h("p", { class: "soft" }, t(`lesson.${what}.text`)), yes: t(`lesson.${what}`) });
    if (yes === null) return;
    const found = await call(`POST /ui/api/lessons/{turn}/${what}`, { path });
    await done(found.words || t("lesson.taken-back"));
  }

  /** @param {LessonDetail} detail */
  async forget(detail) {
    const session = detail.row.session;
    const yes = await ask({ title: t("forget.session.ask"), text: h("p", { class: "soft" }, t("forget.session.text")), yes: t("forget.yes"), isDanger: true });
    if (yes === null) return;
    const found = await call("POST /ui/api/data/forget", { query: { user: detail.row.user }, body: { session, confirm: session } });
    toast(found.words);
    this.element.remove();
    this.given.changed();
  }
}
