/** One turn of a conversation: what was said, the answer as it comes, what can be done about it, what became of it. */

import { call, stream } from "./wire.js";
import { fill, h } from "./dom.js";
import { when } from "./format.js";
import { icon } from "./icons.js";
import { t } from "./i18n.js";
import { Journey } from "./journey.js";
import { Markdown, markdown } from "./markdown.js";
import { busy, button, chip, errorWords, iconButton, sayError, speak, toast, versionLink } from "./parts.js";

/** @typedef {import("./api").ChatTurn} ChatTurn */
/** @typedef {import("./api").SaidText} Said */
/** @typedef {import("./api").Correction} Correction */

/**
 * What a turn asks of the page that it stands on.
 * @typedef {object} Ground
 * @property {(turn: ChatTurn) => void} again another answer
 * @property {(turn: ChatTurn, text: string) => void} edit the question anew
 * @property {(turn: ChatTurn) => ChatTurn[]} siblings its alternatives, itself among them, in their order
 * @property {(turn: ChatTurn) => void} choose shows this alternative
 * @property {() => import("./api").Me} me
 * @property {boolean} isOwn whether the reader may say something here
 */

const READ_CHARS = 80;
/** So much of an answer is read out at once. */

export class TurnView {
  /**
   * @param {ChatTurn} turn
   * @param {Ground} ground
   */
  constructor(turn, ground) {
    this.turn = turn;
    this.ground = ground;
    this.asked = h("div", { class: "asked" });
    this.head = h("div", { class: "answer-head" });
    this.prose = h("div", { class: "prose" });
    this.thought = h("div");
    this.calls = h("div");
    this.state = h("div");
    this.tools = h("div", { class: "answer-tools", role: "group", "aria-label": t("answer.tools") });
    this.rate = h("div");
    this.beside = h("div");
    this.journey = new Journey();
    this.pairs = h("div", { class: "pairs" }, h("div", null, this.head, this.thought, this.prose, this.calls, this.state), this.beside);
    this.answer = h("div", { class: "answer" }, this.pairs, this.tools, this.rate, this.journey.place);
    this.element = h("article", { class: "turn", "data-turn": turn.id, "aria-label": t("turn.label", { n: turn.index + 1 }) }, this.asked, this.answer);
    this.writer = new Markdown(this.prose);
    this.isGoing = false;
    this.frame = 0;
    this.unread = "";
    this.written = "";
    this.grew = () => {};
    this.beside.hidden = true;
    this.draw();
  }

  draw() {
    const { turn } = this;
    fill(this.asked, turn.asked.map((said) => this.said(said)));
    this.drawAnswer();
    this.showJourney();
  }

  /** Nothing is learned from what is private: that stands above it, and not under each answer. */
  showJourney() {
    this.journey.show(this.turn.is_private ? null : this.turn.correction);
  }

  /** @param {Said} said */
  said(said) {
    if (said.role === "user") return this.you(said);
    if (said.role === "assistant") return h("div", { class: "answer" }, markdown(said.text), said.calls.map(callOf));
    const name = said.role === "tool" ? t("tool.result") : t("tool.instructions");
    return h("details", { class: "tool" }, h("summary", null, name), h("pre", { tabindex: "0" }, said.text));
  }

  /** @param {Said} said */
  you(said) {
    const row = h("div", { class: "you" });
    const rest = () => {
      const edit = iconButton("edit", t("edit.question"), () => this.startEdit(row, said.text, rest));
      const tools = this.ground.isOwn ? h("div", { class: "tools row" }, this.alternatives(), edit) : this.alternatives();
      fill(row, h("div", { class: "bubble said" }, h("span", { class: "unseen" }, `${t("you")}: `), said.text), tools);
    };
    rest();
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {string} text
   * @param {() => void} rest
   */
  startEdit(row, text, rest) {
    const field = h("textarea", { value: text, rows: Math.min(8, text.split("\n").length + 1), "aria-label": t("edit.question") });
    const form = h(
      "form",
      { class: "rate", "data-stay": true },
      field,
      h("div", { class: "row" }, h("button", { class: "button first small", type: "submit" }, t("edit.send")), button(t("cancel"), { class: "button small", onclick: rest })),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      rest();
      if (field.value.trim()) this.ground.edit(this.turn, field.value.trim());
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") rest();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    fill(row, form);
    form.style.setProperty("width", "100%");
    field.focus();
  }

  alternatives() {
    const all = this.ground.siblings(this.turn);
    if (all.length < 2) return null;
    const at = all.findIndex((one) => one.id === this.turn.id);
    const to = (/** @type {number} */ step) => () => {
      const other = all[at + step];
      if (other) this.ground.choose(other);
    };
    return h(
      "span",
      { class: "row small soft", role: "group", "aria-label": t("alternatives") },
      iconButton("arrow", t("alternatives.before"), to(-1), { disabled: at === 0, class: "quiet back" }),
      h("span", { class: "num" }, `${at + 1} / ${all.length}`),
      iconButton("arrow", t("alternatives.after"), to(1), { disabled: at === all.length - 1 }),
    );
  }

  drawAnswer() {
    const { turn } = this;
    const versions = turn.versions.length > 1 ? turn.versions : turn.version ? [turn.version] : [];
    fill(this.head, versions.map((one) => versionLink(one)), turn.finished_at ? when(turn.finished_at) : null, turn.is_private ? chip(t("private"), "", "lock") : null);
    this.showThinking(turn.answer.thinking);
    this.writer.show(turn.answer.text);
    fill(this.calls, turn.answer.calls.map(callOf));
    const ended = { length: t("ended.length"), abort: t("ended.abort"), error: t("ended.error") };
    const words = turn.finish_reason in ended ? ended[/** @type {keyof typeof ended} */ (turn.finish_reason)] : "";
    fill(this.state, words ? h("p", { class: "soft small" }, words) : null);
    this.drawTools();
  }

  drawTools() {
    const { turn, ground } = this;
    const given = turn.feedback.findLast((one) => one.score !== null)?.score ?? null;
    const answers = ground.me().version;
    const copy = iconButton("copy", t("copy.answer"), async () => {
      await navigator.clipboard.writeText(turn.answer.text);
      toast(t("copied"));
    });
    const canCompare = ground.isOwn && turn.version && answers !== turn.version && turn.kind === "main" && turn.answer.calls.length === 0;
    fill(
      this.tools,
      ground.isOwn && !turn.is_private
        ? [
            iconButton("up", t("rate.up"), (event) => busy(event, () => this.thumb(1)), { pressed: given === 1 }),
            iconButton("down", t("rate.down"), () => this.openRate(-1), { pressed: given === -1 }),
          ]
        : null,
      ground.isOwn ? iconButton("again", t("again"), () => ground.again(turn)) : null,
      copy,
      canCompare ? button(t("compare.ask", { version: answers }), { class: "quiet", icon: "compare", onclick: (event) => busy(event, () => this.compare(answers)) }) : null,
    );
  }

  /** @param {-1 | 1} score */
  async thumb(score) {
    await this.give(score, "");
    this.openRate(score);
  }

  /**
   * @param {-1 | 1} score
   * @param {string} text
   */
  async give(score, text) {
    const correction = await call("POST /ui/api/turns/{turn}/feedback", { path: { turn: this.turn.id }, body: text ? { score, text } : { score } });
    this.turn.feedback.push({ user: this.ground.me().user, at: Date.now() / 1000, score, text });
    this.correct(correction);
    this.drawTools();
    speak(t("rate.thanks"));
  }

  /** @param {-1 | 1} score */
  openRate(score) {
    const words = h("textarea", { placeholder: t(score > 0 ? "rate.up.example" : "rate.down.example"), maxlength: 4000 });
    const close = () => fill(this.rate);
    const form = h(
      "form",
      { class: "rate", "data-stay": true },
      h("label", { class: "field" }, h("span", { class: "soft" }, t(score > 0 ? "rate.up.ask" : "rate.down.ask")), words),
      h("div", { class: "row" }, h("button", { type: "submit", class: "button first small" }, t("send")), button(t(score > 0 ? "rate.enough" : "cancel"), { class: "button small", onclick: close })),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = words.value.trim();
      if (score > 0 && !text) return close();
      const send = form.querySelector("button");
      if (send) send.disabled = true;
      this.give(score, text).then(close, (error) => {
        if (send) send.disabled = false;
        sayError(error);
      });
    });
    words.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    fill(this.rate, form);
    words.focus();
  }

  /** @param {Correction} correction */
  correct(correction) {
    this.turn.correction = correction;
    this.showJourney();
  }

  /** The version that answers has changed. */
  versionChanged() {
    if (!this.isGoing) this.drawTools();
  }

  /**
   * The same question to another version, beside this answer.
   * @param {string} version
   */
  async compare(version) {
    const prose = h("div", { class: "prose" });
    const stop = new AbortController();
    const close = () => {
      stop.abort();
      this.beside.hidden = true;
      this.pairs.classList.remove("two");
    };
    fill(
      this.beside,
      h("div", { class: "answer-head" }, versionLink(version), h("span", null, t("compare.note")), iconButton("cross", t("close"), close)),
      prose,
    );
    this.beside.hidden = false;
    this.beside.dataset["stay"] = "";
    this.pairs.classList.add("two");
    const writer = new Markdown(prose);
    let text = "";
    const body = { again: this.turn.id, session: this.turn.id.slice(0, this.turn.id.lastIndexOf(".")), beside: true, version };
    try {
      for await (const event of stream("POST /ui/api/chat", { body, signal: stop.signal })) {
        if (event.event === "text") writer.show((text += event.text));
        if (event.event === "failed") fill(prose, h("p", { class: "failed" }, event.message));
      }
      if (text) speak(`${version}: ${text}`);
    } catch (error) {
      if (!stop.signal.aborted) fill(prose, h("p", { class: "failed" }, errorWords(error) || t("failed.gone")));
    }
  }

  /** @param {string} text */
  showThinking(text) {
    if (!text) return fill(this.thought);
    const open = this.thought.querySelector("details")?.open ?? false;
    fill(this.thought, h("details", { class: "thought", open }, h("summary", null, t("thinking")), h("div", { class: "said" }, text)));
  }

  /* While the answer comes. */

  begin() {
    this.isGoing = true;
    this.answer.classList.add("going");
    this.prose.setAttribute("aria-busy", "true");
    fill(this.tools);
    fill(this.state, h("p", { class: "soft small" }, t("answering")));
  }

  /**
   * @param {"text" | "thinking" | "call"} kind
   * @param {string} text
   */
  write(kind, text) {
    fill(this.state);
    const { answer } = this.turn;
    if (kind === "thinking") answer.thinking += text;
    else if (kind === "call") this.written = this.written + text;
    else {
      answer.text += text;
      this.unread += text;
    }
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (answer.thinking) this.showThinking(answer.thinking);
      if (this.written) fill(this.calls, h("div", { class: "tool" }, h("pre", null, this.written)));
      this.writer.show(answer.text);
      this.readOut(false);
      this.grew();
    });
  }

  /** Whole sentences for a screen reader, as they are there. @param {boolean} all */
  readOut(all) {
    const text = this.unread;
    const end = all ? text.length : Math.max(...[". ", "! ", "? ", "。", "！", "？", "\n"].map((sign) => text.lastIndexOf(sign))) + 1;
    if (end <= 0 || (!all && end < READ_CHARS)) return;
    speak(text.slice(0, end));
    this.unread = text.slice(end);
  }

  /** @param {{ failed?: string, retry?: () => void }} [given] */
  end(given = {}) {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.isGoing = false;
    this.answer.classList.remove("going");
    this.prose.removeAttribute("aria-busy");
    this.readOut(true);
    this.draw();
    if (given.failed !== undefined) {
      fill(
        this.state,
        h("div", { class: "failed", role: "alert" }, icon("warn"), h("div", null, h("p", null, given.failed), given.retry ? button(t("send.again"), { class: "button small", onclick: given.retry }) : null)),
      );
      fill(this.tools);
    }
  }
}

/** @param {import("./api").CallText} one */
function callOf(one) {
  let text = one.arguments;
  try {
    text = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // What a model wrote need not be JSON; then it stands as it is.
  }
  return h("details", { class: "tool" }, h("summary", null, t("tool.call", { name: one.name })), h("pre", { tabindex: "0" }, text));
}
