/** The first page: a conversation, the list of all of them, and what becomes of what one says. */

import { call, Refused, stream } from "./wire.js";
import { Composer } from "./composer.js";
import { fill, h } from "./dom.js";
import { Growing } from "./growing.js";
import { icon } from "./icons.js";
import { t } from "./i18n.js";
import { stateWords } from "./journey.js";
import { button, empty, errorWords, iconButton, sayError, speak } from "./parts.js";
import { Talks } from "./talks.js";
import { Thread } from "./thread.js";
import { TurnView } from "./turn.js";

/** @typedef {import("./api").ChatTurn} ChatTurn */
/** @typedef {import("./api").SayBody} ChatBody */
/** @typedef {import("./app.js").App} App */

const AT_END_PX = 90;
const STORED_MS = 3000;
const IDEAS = ["idea.1", "idea.2", "idea.3", "idea.4"];

export class ChatPage {
  /**
   * @param {App} app
   * @param {HTMLElement} place
   */
  constructor(app, place) {
    this.app = app;
    this.session = "";
    this.thread = new Thread();
    this.isOwn = true;
    this.redraws = false;
    /** @type {Promise<void>} */
    this.stopped = Promise.resolve();
    /** @type {{ turn: string, resolve: () => void } | null} */
    this.waiting = null;
    /** @type {Growing<ChatTurn> | null} */
    this.rows = null;
    /** @type {Map<string, TurnView>} */
    this.views = new Map();
    /** @type {AbortController | null} */
    this.going = null;
    this.composer = new Composer({
      send: (text) => this.say(text),
      stop: () => this.going?.abort(),
      toPrivate: (wanted) => this.composer.setPrivate(wanted, false),
    });
    this.talks = new Talks({ me: app.me, user: app.user, choose: (user) => app.choose(user), start: (isPrivate) => this.startNew(isPrivate) });
    this.title = h("h1", null, t("nav.chat"));
    this.inner = h("div", { class: "inner" });
    this.tail = h("div");
    this.turns = h("div", { class: "turns", tabindex: "0", role: "region", "aria-label": t("chat.label") }, this.inner);
    this.toEnd = button(t("chat.to-end"), { class: "button small to-end", icon: "arrow", onclick: () => this.scrollToEnd() });
    this.toEnd.hidden = true;
    this.turns.addEventListener("scroll", () => this.scrolled(), { passive: true });
    const menu = iconButton("menu", t("talks.label"), () => this.toggleTalks(), { class: "quiet only-narrow" });
    menu.setAttribute("aria-controls", "talks");
    menu.setAttribute("aria-expanded", "false");
    this.menu = menu;
    this.version = h("span");
    const room = h(
      "div",
      { class: "room" },
      h("div", { class: "room-head" }, menu, this.title, this.version, iconButton("plus", t("new"), () => this.startNew(false), { class: "quiet only-narrow" })),
      this.turns,
      this.toEnd,
      this.composer.form,
    );
    fill(place, h("div", { class: "chat" }, this.talks.place, room));
    this.talks.place.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.toggleTalks(false);
    });
    room.addEventListener("click", (event) => {
      if (!menu.contains(/** @type {Node} */ (event.target))) this.toggleTalks(false);
    });
    this.drawVersion();
    this.talks.start();
  }

  /** @param {boolean} [isOpen] */
  toggleTalks(isOpen = !this.talks.place.classList.contains("open")) {
    const was = this.talks.place.classList.contains("open");
    this.talks.place.classList.toggle("open", isOpen);
    this.menu.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.talks.place.querySelector("button")?.focus();
    else if (was) this.menu.focus();
  }

  drawVersion() {
    const { version, learns } = this.app.me;
    const words = version === "v0" ? t("answers.base") : t("answers.version", { version });
    fill(this.version, h("a", { class: "chip accent", href: "#/versions", title: learns ? words : t("learns.not") }, icon("spark"), version));
  }

  /**
   * @param {string[]} path
   * @param {URLSearchParams} query
   */
  async go(path, query) {
    const session = path[0] ?? "";
    this.toggleTalks(false);
    if (session !== "" && session === this.session) return;
    this.going?.abort();
    this.going = null;
    this.composer.going(false);
    this.session = session;
    this.thread = new Thread();
    this.views.clear();
    this.rows?.close();
    this.rows = null;
    this.talks.mark(session);
    this.composer.open(session || "new");
    if (session === "") return this.hello(query.has("private"));
    await this.openTalk(session);
  }

  /** @param {boolean} isPrivate */
  startNew(isPrivate) {
    const hash = isPrivate ? "#/chat?private" : "#/chat";
    if (location.hash === hash) this.go([], new URLSearchParams(isPrivate ? "private" : ""));
    location.hash = hash;
    this.composer.field.focus();
  }

  /** @param {boolean} isPrivate */
  hello(isPrivate) {
    this.isOwn = this.app.user === this.app.me.user;
    this.title.textContent = t(isPrivate ? "new.private" : "new");
    this.composer.form.hidden = !this.isOwn;
    this.composer.setPrivate(isPrivate, false);
    const ideas = IDEAS.map((key) => h("button", { type: "button", class: "idea", onclick: () => this.say(t(key)) }, t(key)));
    fill(this.tail);
    if (!this.isOwn) {
      fill(this.inner, empty(t("others.title"), t("others.text", { user: this.app.user })));
      return;
    }
    const steps = this.app.me.learns ? h("ol", null, ["hello.1", "hello.2", "hello.3"].map((key) => h("li", null, h("span", null, t(key))))) : h("p", { class: "soft" }, t("learns.not"));
    const lead = h("p", { class: "soft" }, t(isPrivate ? "hello.private" : "hello.text"));
    fill(this.inner, h("div", { class: "hello" }, h("h2", null, t(isPrivate ? "hello.private.title" : "hello.title")), lead, isPrivate ? null : steps, h("div", { class: "ideas" }, ideas)), this.tail);
    this.resend();
    if (matchMedia("(min-width: 56rem)").matches) this.composer.field.focus({ preventScroll: true });
  }

  /** @param {string} session */
  async openTalk(session) {
    fill(this.tail);
    const rows = this.openRows(session);
    await rows.start();
    if (this.session !== session) return;
    this.scrollToEnd();
    this.resend();
  }

  /**
   * What is shown of a conversation, page after page from its end.
   * @param {string} session
   */
  openRows(session) {
    const rows = new Growing({
      root: this.turns,
      upwards: true,
      ask: async (before) => {
        if (this.redraws) return { items: this.thread.path(), next: this.thread.next };
        const found = await call("GET /ui/api/sessions/{session}", { path: { session }, query: { before, limit: 40 } });
        if (before === null) this.known(found.session);
        const items = this.thread.add(found.turns, found.next);
        return { items, next: found.next };
      },
      row: (/** @type {ChatTurn} */ turn) => this.view(turn).element,
      isQuiet: () => this.redraws,
      none: () => h("p", { class: "soft" }, t("chat.empty")),
      grew: (change) => {
        const fromEnd = this.turns.scrollHeight - this.turns.scrollTop;
        change();
        this.turns.scrollTop = this.turns.scrollHeight - fromEnd;
      },
    });
    this.rows = rows;
    fill(this.inner, rows.place, this.tail);
    return rows;
  }

  /** @param {import("./api").ConversationRow} row */
  known(row) {
    this.isOwn = row.user === this.app.me.user;
    this.title.textContent = row.title || t("talks.untitled");
    this.composer.form.hidden = !this.isOwn;
    this.composer.setPrivate(row.is_private, row.is_private);
  }

  /** What was sent and never answered, because the page or the server went away, comes back to where it was typed. */
  resend() {
    const text = sessionStorage.getItem(`sent:${this.session}`);
    if (text === null || this.going) return;
    sessionStorage.removeItem(`sent:${this.session}`);
    if (this.thread.leaf?.asked.at(-1)?.text !== text && !this.composer.text) this.composer.put(text);
  }

  /** @returns {import("./turn.js").Ground} */
  get ground() {
    return {
      again: (turn) => this.again(turn),
      edit: (turn, text) => this.edit(turn, text),
      siblings: (turn) => this.thread.siblings(turn),
      choose: (turn) => {
        this.thread.choose(turn);
        this.redraw();
      },
      me: () => this.app.me,
      isOwn: this.isOwn,
    };
  }

  /** @param {ChatTurn} turn */
  view(turn) {
    const view = new TurnView(turn, this.ground);
    view.grew = () => this.follow();
    this.views.set(turn.id, view);
    return view;
  }

  /** The conversation along another branch, from what is here already. */
  async redraw() {
    fill(this.tail);
    this.redraws = true;
    // A conversation that began on this page stands below its list until now, and has none yet.
    await (this.rows ?? this.openRows(this.session)).start();
    this.redraws = false;
  }

  /** @param {string} text */
  say(text) {
    const last = this.thread.leaf;
    const body = this.session ? { text, session: this.session, after: last?.id ?? null } : { text };
    this.composer.clear();
    return this.answer({ ...body, private: this.composer.isPrivate }, text, last?.index ?? null);
  }

  /** @param {ChatTurn} turn */
  async again(turn) {
    if (this.going) return;
    this.thread.cutBefore(turn);
    await this.redraw();
    const text = turn.asked.findLast((said) => said.role === "user")?.text ?? "";
    await this.answer({ again: turn.id, session: this.session, private: turn.is_private }, text, turn.parent, turn.asked);
  }

  /**
   * @param {ChatTurn} turn
   * @param {string} text
   */
  async edit(turn, text) {
    if (this.going) return;
    this.thread.cutBefore(turn);
    await this.redraw();
    const after = this.thread.leaf?.id ?? null;
    await this.answer({ text, after, session: this.session, private: turn.is_private }, text, turn.parent);
  }

  /**
   * @param {ChatBody} body
   * @param {string} text
   * @param {number | null} parent
   * @param {import("./api").SaidText[]} [asked]
   */
  async answer(body, text, parent, asked) {
    const stop = new AbortController();
    this.going = stop;
    this.composer.going(true);
    if (!this.session) fill(this.inner, this.tail);
    const turn = unanswered(asked ?? [{ role: "user", text, thinking: "", calls: [] }], parent, body.private ?? false);
    const view = this.view(turn);
    this.tail.append(view.element);
    view.begin();
    this.scrollToEnd();
    const started = this.session;
    sessionStorage.setItem(`sent:${started}`, text);
    const isHere = () => this.going === stop;
    let failed = "";
    try {
      await this.stopped;
      for await (const event of stream("POST /ui/api/chat", { body, signal: stop.signal })) {
        if (event.event === "begun") this.begun(event, turn, view, isHere());
        else if (event.event === "ended") turn.finish_reason = event.finish_reason;
        else if (event.event === "failed") failed = event.message;
        else view.write(event.event, event.text);
      }
      if (!failed && turn.id) await this.ended(turn, view);
    } catch (error) {
      if (stop.signal.aborted) {
        turn.finish_reason = "abort";
        this.stopped = this.whenStored(turn.id);
      }
      else failed = errorWords(error) || (error instanceof Refused && error.status === 401 ? t("signed-out") : t("chat.lost"));
    }
    sessionStorage.removeItem(`sent:${started}`);
    sessionStorage.removeItem(`sent:${turn.session}`);
    if (isHere()) {
      this.going = null;
      this.composer.going(false);
    }
    if (failed) {
      if (isShown(this, turn) && !this.composer.text) this.composer.put(text);
      view.end({ failed, retry: () => this.retry(view, body, text, parent, asked) });
    } else {
      if (!turn.finished_at) turn.finished_at = Date.now() / 1000;
      if (turn.id) this.thread.put(turn);
      view.end();
    }
    this.follow();
  }

  /**
   * A stopped answer is on disk a moment later; what is said next stands on it.
   * @param {string} turn
   * @returns {Promise<void>}
   */
  whenStored(turn) {
    return new Promise((resolve) => {
      this.waiting = { turn, resolve };
      setTimeout(resolve, STORED_MS);
    });
  }

  /**
   * @param {TurnView} view
   * @param {ChatBody} body
   * @param {string} text
   * @param {number | null} parent
   * @param {import("./api").SaidText[] | undefined} asked
   */
  retry(view, body, text, parent, asked) {
    if (this.going) return;
    view.element.remove();
    if (this.composer.text === text) this.composer.clear();
    this.answer(body, text, parent, asked);
  }

  /**
   * @param {import("./api").AnswerBegun} event
   * @param {ReturnType<typeof unanswered>} turn
   * @param {TurnView} view
   * @param {boolean} isHere
   */
  begun(event, turn, view, isHere) {
    turn.id = event.turn;
    turn.session = event.session;
    turn.index = Number(event.turn.slice(event.turn.lastIndexOf(".") + 1));
    turn.version = event.version;
    view.element.dataset["turn"] = turn.id;
    this.views.set(turn.id, view);
    if (!isHere || this.session) return;
    this.session = event.session;
    history.replaceState(null, "", `#/chat/${encodeURIComponent(event.session)}`);
    this.composer.rename(event.session);
    this.title.textContent = turn.asked[0]?.text.slice(0, 80) ?? "";
    if (turn.is_private) this.composer.setPrivate(true, true);
    this.talks.mark(this.session);
    this.talks.start();
  }

  /**
   * @param {ChatTurn} turn
   * @param {TurnView} view
   */
  async ended(turn, view) {
    try {
      Object.assign(turn, await call("GET /ui/api/turns/{turn}", { path: { turn: turn.id } }));
      view.turn = turn;
    } catch (error) {
      // The answer is there, and on disk; what else is known of it comes with the next event.
      if (!(error instanceof Refused)) throw error;
    }
  }

  /** @param {import("./live.js").Live} event */
  heard(event) {
    if (event.event === "turn" && event.turn === this.waiting?.turn) this.waiting.resolve();
    if (event.event === "correction") this.corrected(event);
    if (event.event === "turn" && event.user === this.app.user) this.stored(event);
    if (event.event === "version") {
      this.drawVersion();
      this.views.forEach((view) => view.element.isConnected && view.versionChanged());
    }
  }

  /** @param {import("./api").LiveCorrection} event */
  corrected({ correction, session }) {
    if (session !== this.session) return;
    const turn = this.thread.named(correction.turn);
    if (turn) turn.correction = correction;
    this.views.get(correction.turn)?.correct(correction);
    speak(`${t("journey.title")}: ${stateWords(correction.state, correction.version)}`);
    this.follow();
  }

  /** A turn of any client. @param {import("./api").LiveTurn} event */
  async stored(event) {
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.talks.start(), 400);
    if (event.session !== this.session || this.going || this.thread.named(event.turn)) return;
    try {
      const turn = await call("GET /ui/api/turns/{turn}", { path: { turn: event.turn } });
      if (turn.kind === "side" || this.going || event.session !== this.session) return;
      const goesOn = turn.parent === (this.thread.leaf?.index ?? null);
      this.thread.put(turn);
      if (goesOn) this.tail.append(this.view(turn).element);
      else this.redraw();
      this.follow();
    } catch (error) {
      sayError(error);
    }
  }

  /** The server is back: what it has may be more, or less, than what is shown. */
  async back() {
    await this.talks.start();
    if (this.going || !this.session) return;
    const session = this.session;
    try {
      const found = await call("GET /ui/api/sessions/{session}", { path: { session }, query: { limit: 40 } });
      if (this.session !== session || this.going) return;
      const isNew = found.turns.some((turn) => !this.thread.named(turn.id));
      this.thread.refresh(found.turns);
      found.turns.forEach((turn) => {
        const view = this.views.get(turn.id);
        if (view) {
          view.turn = turn;
          view.draw();
        }
      });
      if (isNew) await this.redraw();
      const typed = this.composer.text;
      if (typed && this.thread.leaf?.asked.at(-1)?.text === typed && isNew) this.composer.clear();
      this.follow();
    } catch (error) {
      sayError(error);
    }
  }

  scrolled() {
    this.toEnd.hidden = this.isAtEnd();
    this.wasAtEnd = this.isAtEnd();
  }

  isAtEnd() {
    return this.turns.scrollHeight - this.turns.scrollTop - this.turns.clientHeight < AT_END_PX;
  }

  /** Stays at the end, if the reader was there. */
  follow() {
    if (this.wasAtEnd ?? true) this.scrollToEnd();
    else this.toEnd.hidden = false;
  }

  scrollToEnd() {
    this.turns.scrollTop = this.turns.scrollHeight;
    this.wasAtEnd = true;
    this.toEnd.hidden = true;
  }

  leave() {
    this.going?.abort();
    this.rows?.close();
    this.talks.rows.close();
    clearTimeout(this.soon);
  }
}

/**
 * Whether the page still shows the conversation that a turn belongs to.
 * @param {ChatPage} page
 * @param {ReturnType<typeof unanswered>} turn
 */
function isShown(page, turn) {
  return page.session === turn.session || (turn.session === "" && page.session === "");
}

/**
 * A question whose answer is still to come.
 * @param {import("./api").SaidText[]} asked
 * @param {number | null} parent
 * @param {boolean} isPrivate
 * @returns {ChatTurn & { session: string }}
 */
function unanswered(asked, parent, isPrivate) {
  return {
    id: "",
    session: "",
    index: -1,
    parent,
    kind: "main",
    asked,
    answer: { role: "assistant", text: "", thinking: "", calls: [] },
    version: "",
    versions: [],
    finish_reason: "stop",
    num_tokens: 0,
    created_at: Date.now() / 1000,
    finished_at: 0,
    is_private: isPrivate,
    feedback: [],
    correction: null,
  };
}
