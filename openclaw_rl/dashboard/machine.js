/** The machine: the loop as stages with a light each, what runs, what it costs, and what is wrong with its remedy. */

import { call } from "./wire.js";
import { fill, h } from "./dom.js";
import { duration, figure, number, percent, size, when } from "./format.js";
import { icon } from "./icons.js";
import { language, t } from "./i18n.js";
import { chip, facts, known, told, within } from "./parts.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./api").Machine} Machine */
/** @typedef {import("./dom.js").Child} Child */

const LIGHTS = { ok: "check", busy: "spark", waits: "", broken: "cross", off: "" };
const AT_MOST_EVERY_S = 1;
const REFRESH_S = 10;

export class MachinePage {
  /**
   * @param {App} app
   * @param {HTMLElement} place
   */
  constructor(app, place) {
    this.app = app;
    this.body = h("div");
    this.asked = 0;
    fill(place, h("div", { class: "page" }, h("header", null, h("h1", null, t("nav.machine")), h("p", null, t("machine.text"))), this.body));
  }

  async go() {
    clearInterval(this.clock);
    this.clock = setInterval(() => document.visibilityState === "visible" && this.update(), REFRESH_S * 1000);
    await within(this.body, async () => this.draw(await call("GET /ui/api/machine")));
  }

  async update() {
    this.asked = Date.now();
    try {
      const found = await call("GET /ui/api/machine");
      const focus = document.activeElement;
      if (focus instanceof HTMLElement && this.body.contains(focus) && focus.tagName !== "SUMMARY") return;
      fill(this.body, this.draw(found));
    } catch {
      // That the server is gone stands in the banner; what was known last stays on the page.
    }
  }

  /** @param {Machine} found */
  draw(found) {
    const troubles = found.remarks.filter((one) => one.state !== "ok");
    return [
      h("section", { class: "card" }, h("h2", { class: "unseen" }, t("machine.loop")), h("ol", { class: "loop" }, found.stages.map(stage))),
      troubles.length
        ? h("section", { class: "section" }, h("h2", null, t("machine.troubles")), h("div", { class: "card" }, troubles.map(trouble)))
        : found.remarks.length
          ? h("p", { class: "section row" }, chip(t("machine.all-well"), "good", "check"), h("span", { class: "soft small" }, t("machine.up", { time: duration(found.uptime_s) })))
          : null,
      h(
        "section",
        { class: "section" },
        h("h2", null, t("machine.parts")),
        h("div", { class: "panels" }, found.engines.map(engine), found.trainer ? trainer(found.trainer) : null, found.judge ? judge(found.judge) : null, found.disk ? disk(found.disk) : null),
      ),
      found.environments.length ? h("section", { class: "section" }, h("h2", null, t("machine.environments")), environments(found.environments)) : null,
    ];
  }

  /** @param {import("./live.js").Live} event */
  heard(event) {
    if (event.event !== "machine" && event.event !== "turn" && event.event !== "correction") return;
    clearTimeout(this.soon);
    const wait = Math.max(0, this.asked + AT_MOST_EVERY_S * 1000 - Date.now());
    this.soon = setTimeout(() => this.update(), Math.max(150, wait));
  }

  back() {
    return this.update();
  }

  leave() {
    clearInterval(this.clock);
    clearTimeout(this.soon);
  }
}

/** @param {keyof typeof LIGHTS} name */
function light(name) {
  return h("span", { class: `light ${name}`, title: t(`light.${name}`) }, LIGHTS[name] ? icon(LIGHTS[name]) : null, h("span", { class: "unseen" }, t(`light.${name}`)));
}

/** @param {import("./api").LoopStage} one */
function stage(one) {
  const oldest = one.oldest_s === null || !one.num_waiting ? "" : ` (${t("stage.oldest", { time: duration(one.oldest_s) })})`;
  return h(
    "li",
    null,
    light(one.light),
    h("h3", null, t(`loop.${one.name}`)),
    h("p", null, words(`light.${one.light}`, one.words)),
    h("p", { class: "num" }, one.num_waiting ? [t("stage.waiting", { n: one.num_waiting }) + oldest, h("br")] : null, t("stage.hour", { n: one.num_last_hour })),
  );
}

/**
 * What the server says in English, elsewhere the light's own words.
 * @param {string} key
 * @param {string} english
 */
function words(key, english) {
  return language() === "en" && english ? english : t(key);
}

/** @param {import("./api").Remark} one */
function trouble(one) {
  return h(
    "div",
    { class: `trouble ${one.state}` },
    h("div", { class: "row" }, h("b", null, told(`remark.${one.name}`, one.name)), chip(t(`remark.${one.state}`), one.state === "broken" ? "bad" : "warn", "warn")),
    h("p", null, known(one.text)),
    one.remedy ? h("p", { class: "soft" }, known(one.remedy)) : null,
  );
}

/**
 * @param {string} title
 * @param {keyof typeof LIGHTS} name
 * @param {string} english
 * @param {[string, Child][]} rows
 */
function panel(title, name, english, rows) {
  return h("section", { class: "card" }, h("h3", { class: "row" }, light(name), title), h("p", { class: "soft small" }, words(`light.${name}`, english)), facts(rows));
}

/** @param {import("./api").EngineTold} one */
function engine(one) {
  return panel(t("machine.engine", { name: one.name }), one.light, one.words, [
    [t("machine.model"), one.model],
    [t("machine.device"), one.device || "–"],
    [t("machine.speed"), one.tokens_per_s === null ? "–" : one.tokens_per_s === 0 ? t("machine.idle") : t("machine.tokens-per-s", { n: figure(one.tokens_per_s) })],
    [t("machine.running"), number(one.num_running)],
    [t("machine.loaded"), one.versions.join(", ") || "–"],
    [t("machine.memory"), one.memory_bytes === null ? "–" : size(one.memory_bytes)],
    [t("machine.restarts"), number(one.num_restarts)],
  ]);
}

/** @param {import("./api").TrainerTold} one */
function trainer(one) {
  return panel(t("machine.trainer"), one.light, one.words, [
    [t("machine.backend"), one.backend],
    [t("machine.steps"), number(one.steps)],
    [t("machine.last-step"), one.last_step_s === null ? "–" : duration(one.last_step_s)],
    [t("machine.speed"), one.tokens_per_s === null ? "–" : t("machine.tokens-per-s", { n: figure(one.tokens_per_s) })],
    [t("machine.memory"), one.memory_bytes === null ? "–" : size(one.memory_bytes)],
    [t("machine.gpu"), one.gpu || t("machine.no-gpu")],
  ]);
}

/** @param {import("./api").JudgeTold} one */
function judge(one) {
  const who = Object.entries(one.judges).map(([name, count]) => `${name} ${number(count)}`);
  return panel(t("machine.judge"), one.light, one.words, [
    [t("machine.judge.name"), one.judge],
    [t("machine.judge.judged"), number(one.num_judged) + (who.length ? ` (${who.join(", ")})` : "")],
    [t("machine.judge.agreement"), one.agreement === null ? "–" : percent(one.agreement)],
    [t("machine.judge.sureness"), one.sureness === null ? "–" : percent(one.sureness)],
    [t("machine.judge.budget"), one.budget === null ? t("machine.no-limit") : one.spent === null ? t("machine.a-day", { n: one.budget }) : t("machine.spent", { spent: number(one.spent), n: one.budget })],
  ]);
}

/** @param {import("./api").DiskTold} one */
function disk(one) {
  const used = one.total_bytes ? 1 - one.free_bytes / one.total_bytes : 0;
  const fillBar = h("i");
  fillBar.style.setProperty("width", `${used * 100}%`);
  return h(
    "section",
    { class: "card" },
    h("h3", null, t("machine.disk")),
    h("div", { class: used > 0.95 ? "bar over" : "bar", role: "img", "aria-label": t("machine.disk.used", { share: percent(used) }) }, fillBar),
    facts([
      [t("machine.disk.store"), size(one.store_bytes)],
      [t("machine.disk.versions"), size(one.versions_bytes)],
      [t("machine.disk.free"), t("machine.disk.of", { free: size(one.free_bytes), total: size(one.total_bytes) })],
    ]),
  );
}

/** @param {import("./api").EnvironmentTold[]} items */
function environments(items) {
  const rows = items.map((one) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, one.name),
      h("td", { class: "num right" }, number(one.num_episodes)),
      h("td", { class: "num right" }, number(one.num_failed)),
      h("td", { class: "num right" }, one.success === null ? "–" : figure(one.success)),
      h("td", null, one.last_at === null ? "–" : when(one.last_at)),
    ),
  );
  const head = ["env.name", "env.episodes", "env.failed", "env.success", "env.last"].map((key, index) => h("th", { scope: "col", class: index > 0 && index < 4 ? "right" : null }, t(key)));
  return h("div", { class: "card scroll" }, h("table", null, h("thead", null, h("tr", null, head)), h("tbody", null, rows)));
}
