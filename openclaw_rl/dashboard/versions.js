/** A line of versions: where each came from, how its check went, what it learned, and which one answers. */

import { address, call } from "./wire.js";
import { ask2 } from "./asking.js";
import { measures, proofOf, servedOf } from "./checks.js";
import { fill, h } from "./dom.js";
import { when } from "./format.js";
import { lineGraph } from "./graph.js";
import { t } from "./i18n.js";
import { ask, busy, button, chip, choice, empty, facts, measureName, toast, whose, within } from "./parts.js";
import { trendsOf } from "./trends.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./api").VersionRow} VersionRow */
/** @typedef {import("./api").VersionDetail} VersionDetail */

const PAGE = 100;

export class VersionsPage {
  /**
   * @param {App} app
   * @param {HTMLElement} place
   */
  constructor(app, place) {
    this.app = app;
    /** @type {VersionRow[]} */
    this.rows = [];
    this.next = /** @type {string | null} */ (null);
    this.answering = app.me.version;
    this.chosen = "";
    this.other = "";
    this.lead = h("p");
    this.who = h("div", { class: "filters" });
    this.graph = h("div");
    this.detail = h("div", { "aria-live": "polite" });
    this.asking = h("section", { class: "section" });
    this.trends = h("section", { class: "section" });
    this.body = h("div");
    fill(place, h("div", { class: "page" }, h("header", null, h("h1", null, t("nav.versions")), this.lead), this.who, this.body));
    fill(this.who, whose({ me: app.me, user: app.user, choose: (user) => app.choose(user) }));
  }

  /** @param {string[]} path */
  async go(path) {
    const asked = path[0] ?? "";
    const other = path[1] === "compare" ? (path[2] ?? "") : "";
    if (!this.rows.length) await this.load();
    this.chosen = asked || this.rows.find((row) => row.answers)?.version || this.rows[0]?.version || "v0";
    this.other = other;
    if (!this.rows.length) return;
    this.drawGraph();
    await this.drawDetail();
  }

  async load() {
    await within(this.body, async () => {
      const page = await call("GET /ui/api/versions", { query: { user: this.app.user, limit: PAGE } });
      this.rows = page.items;
      this.next = page.next;
      this.answering = page.answering;
      fill(this.lead, page.answering === "v0" ? t("versions.text.base") : t("versions.text", { version: page.answering }));
      if (!this.rows.length) return empty(t("versions.none"), t("versions.none.text"), h("a", { class: "button first", href: "#/chat" }, t("lessons.start")));
      this.drawGraph();
      this.drawAsking();
      this.drawTrends();
      return [h("div", { class: "split" }, this.graph, this.detail), this.asking, this.trends];
    });
  }

  drawGraph() {
    const more = this.next === null ? null : button(t("more"), { class: "quiet", onclick: (event) => busy(event, () => this.older()) });
    const scroll = this.graph.firstElementChild?.scrollTop ?? 0;
    fill(this.graph, lineGraph({ rows: this.rows, answering: this.answering, chosen: this.chosen, choose: (version) => (location.hash = this.hash(version)), isWhole: this.next === null }), more);
    if (this.graph.firstElementChild) this.graph.firstElementChild.scrollTop = scroll;
  }

  async older() {
    const page = await call("GET /ui/api/versions", { query: { user: this.app.user, limit: PAGE, after: this.next } });
    this.rows = [...this.rows, ...page.items];
    this.next = page.next;
    this.drawGraph();
  }

  /** @param {string} version */
  hash(version, other = "") {
    return `#/versions/${encodeURIComponent(version)}${other ? `/compare/${encodeURIComponent(other)}` : ""}`;
  }

  async drawDetail() {
    fill(this.detail);
    const { chosen, other } = this;
    await within(this.detail, async () => {
      if (other) return this.compared(await call("GET /ui/api/versions/{version}/compare/{other}", { path: { version: chosen, other }, query: { user: this.app.user } }));
      if (chosen === "v0") return this.base();
      return this.one(await call("GET /ui/api/versions/{version}", { path: { version: chosen } }));
    });
  }

  /** The model as it came, before anybody taught it anything. */
  base() {
    const isIt = this.answering === "v0";
    return h(
      "div",
      { class: "card" },
      h("div", { class: "row" }, h("h2", null, "v0"), isIt ? chip(t("version.answers"), "good", "check") : null),
      h("p", { class: "soft" }, t("version.base", { model: this.app.me.model })),
      h("div", { class: "actions row" }, isIt ? null : this.rollBack("v0", false)),
    );
  }

  /** @param {VersionDetail} found */
  one(found) {
    const { row } = found;
    const others = [["", t("version.compare.choose")], ["v0", t("version.base-name")], ...this.rows.filter((one) => one.version !== row.version).map((one) => [one.version, one.version])];
    const numbers = Object.entries(found.metrics);
    const exported = h("a", { class: "button small", href: address("GET /ui/api/versions/{version}/export", { version: row.version }), download: `${row.version}.tar` }, t("version.export"));
    return [
      h(
        "div",
        { class: "card" },
        h("div", { class: "row" }, h("h2", null, row.version), stateChips(row)),
        row.reason && row.state !== "live" ? h("p", { class: "small" }, row.reason) : null,
        facts([
          [t("version.made"), when(row.created_at)],
          [t("version.from"), row.parent ? `v${row.parent}` : t("version.base-name")],
          [t("version.learned"), t("version.lessons", { n: row.num_lessons }) + (row.num_replayed ? `, ${t("version.replayed", { n: row.num_replayed })}` : "")],
        ]),
        h(
          "div",
          { class: "row actions" },
          row.can_answer && !row.answers ? this.rollBack(row.version, row.live_at === null) : null,
          row.has_weights ? exported : null,
          choice(t("version.compare"), /** @type {[string, string][]} */ (others), "", (value) => value && (location.hash = this.hash(row.version, value))),
        ),
      ),
      h("div", { class: "card" }, h("h3", null, t(`check.${found.check}`)), measures(found), proofOf(found), servedOf(found.served)),
      found.lessons.length ? h("div", { class: "card" }, h("h3", null, t("version.learned-from")), lessonsOf(found.lessons)) : null,
      numbers.length
        ? h("details", { class: "card" }, h("summary", null, t("version.figures")), facts([...numbers.map(([name, value]) => /** @type {[string, string]} */ ([name, value.toPrecision(4)])), ["sha256", found.sha256], [t("machine.model"), found.model]]))
        : null,
    ];
  }

  /** @param {import("./api").Comparison} found */
  compared(found) {
    const left = found.left?.version ?? "v0";
    const right = found.right?.version ?? "v0";
    const rows = found.measures.map((one) => h("tr", null, h("th", { scope: "row" }, measureName(one)), h("td", { class: "num right" }, short(one.left)), h("td", { class: "num right" }, short(one.right))));
    return [
      h("div", { class: "card" }, h("div", { class: "row apart" }, h("h2", null, t("compare.title", { left, right })), h("a", { href: this.hash(this.chosen) }, t("close")))),
      h("div", { class: "card scroll" }, h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, t("check.measure")), h("th", { scope: "col", class: "right" }, left), h("th", { scope: "col", class: "right" }, right))), h("tbody", null, rows))),
      h("div", { class: "card" }, h("h3", null, t("compare.only", { version: left })), lessonsOf(found.only_left)),
      h("div", { class: "card" }, h("h3", null, t("compare.only", { version: right })), lessonsOf(found.only_right)),
    ];
  }

  /**
   * @param {string} version
   * @param {boolean} isUntried
   */
  rollBack(version, isUntried) {
    return button(t("version.roll-back"), {
      class: "button small",
      icon: "undo",
      onclick: (event) =>
        busy(event, async () => {
          const text = h("p", { class: "soft" }, t(isUntried ? "version.roll-back.untried" : "version.roll-back.text", { version }));
          if ((await ask({ title: t("version.roll-back.ask", { version }), text, yes: t("version.roll-back.yes") })) === null) return;
          const now = await call("POST /ui/api/versions/{version}/rollback", { path: { version }, query: { user: this.app.user }, body: { untried: isUntried } });
          toast(t("live.version", { version: now.version }));
          await this.again();
        }),
    });
  }

  drawAsking() {
    const names = [["v0", t("version.base-name")], ...this.rows.filter((row) => row.can_answer || row.answers).map((row) => [row.version, row.version])];
    ask2(this.asking, { user: this.app.user, versions: /** @type {[string, string][]} */ (names), answering: this.answering });
  }

  async drawTrends() {
    await within(this.trends, async () => trendsOf(await call("GET /ui/api/trends", { query: { user: this.app.user } })));
  }

  async again() {
    this.rows = [];
    await this.app.refresh();
    await this.load();
    await this.drawDetail();
  }

  /** @param {import("./live.js").Live} event */
  heard(event) {
    if (event.event === "version" && event.user === this.app.user) {
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.update(), 400);
    }
  }

  async update() {
    const page = await call("GET /ui/api/versions", { query: { user: this.app.user, limit: PAGE } });
    const hadNone = !this.rows.length;
    const known = new Set(page.items.map((row) => row.version));
    this.rows = [...page.items, ...this.rows.filter((row) => !known.has(row.version))];
    this.answering = page.answering;
    if (hadNone) return this.again();
    fill(this.lead, page.answering === "v0" ? t("versions.text.base") : t("versions.text", { version: page.answering }));
    this.drawGraph();
    this.drawTrends();
  }

  back() {
    return this.again();
  }

  leave() {
    clearTimeout(this.soon);
  }
}

/** @param {VersionRow} row */
function stateChips(row) {
  const kinds = { probation: "warn", live: "good", rejected: "bad", rolled_back: "warn" };
  const kind = row.state in kinds ? kinds[/** @type {keyof typeof kinds} */ (row.state)] : "";
  return [row.answers ? chip(t("version.answers"), "good", "check") : null, row.state === "live" && row.answers ? null : chip(t(`version.state.${row.state}`), kind), row.is_imported ? chip(t("version.imported")) : null];
}

/** @param {import("./api").VersionLesson[]} lessons */
function lessonsOf(lessons) {
  if (!lessons.length) return h("p", { class: "soft" }, t("version.no-lessons"));
  // A turn and its demonstration are two samples, and one lesson.
  const once = lessons.filter((one, at) => one.turn === null || lessons.findIndex((other) => other.turn === one.turn) === at);
  return h(
    "ul",
    { class: "plain" },
    once.map((one) =>
      h(
        "li",
        null,
        one.turn ? h("a", { href: `#/lessons/${encodeURIComponent(one.turn)}` }, one.sentence || t("lesson.thumb")) : h("span", { class: "soft" }, one.sentence || t("version.lesson-gone")),
        one.is_replayed ? " " : null,
        one.is_replayed ? chip(t("lesson.again")) : null,
      ),
    ),
  );
}

/** @param {number | null} value */
function short(value) {
  return value === null ? "–" : value.toPrecision(3);
}
