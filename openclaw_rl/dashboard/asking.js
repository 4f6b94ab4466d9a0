/** The same question to two versions, side by side: what learning changed, in plain answers. */

import { call } from "./wire.js";
import { fill, h } from "./dom.js";
import { t } from "./i18n.js";
import { markdown } from "./markdown.js";
import { busy, choice, errorWords } from "./parts.js";

/**
 * @param {HTMLElement} place
 * @param {{ user: string, versions: [string, string][], answering: string }} given
 */
export function ask2(place, { user, versions, answering }) {
  let left = "v0";
  let right = answering === "v0" ? (versions[1]?.[0] ?? "v0") : answering;
  const sides = h("div", { class: "answers", "aria-live": "polite" });
  const list = h("datalist", { id: "questions" });
  const field = h("input", { list: "questions", placeholder: t("asking.place"), "aria-label": t("asking.place"), maxlength: 2000 });
  const go = h("button", { type: "submit", class: "button first" }, t("asking.ask"));
  const all = h("button", { type: "button", class: "button" }, t("asking.all"));
  /** @type {string[]} */
  let questions = [];
  const ask = async (/** @type {string} */ question) => {
    const one = h("div", { class: "sides" }, h("div", { class: "question" }, question), h("div", { class: "soft" }, t("answering")), h("div", { class: "after soft" }, ""));
    sides.append(one);
    try {
      const found = await call("POST /ui/api/ask", { query: { user }, body: { question, left, right } });
      fill(
        one,
        h("div", { class: "question" }, found.question),
        h("div", null, h("div", { class: "soft small" }, found.left_version), markdown(found.left)),
        h("div", { class: "after" }, h("div", { class: "soft small" }, found.right_version), markdown(found.right)),
      );
    } catch (error) {
      fill(one, h("div", { class: "question" }, question), h("p", { class: "failed" }, errorWords(error) || t("failed.gone")));
    }
  };
  const form = h(
    "form",
    { class: "filters" },
    choice(t("asking.left"), versions, left, (value) => (left = value)),
    choice(t("asking.right"), versions, right, (value) => (right = value)),
    h("label", { class: "field wide" }, h("span", { class: "soft" }, t("asking.question")), field),
    list,
    go,
    all,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const question = field.value.trim() || questions[0];
    if (!question) return;
    fill(sides);
    go.disabled = true;
    ask(question).finally(() => (go.disabled = false));
  });
  all.addEventListener("click", (event) =>
    busy(event, async () => {
      fill(sides);
      for (const question of questions) await ask(question);
    }),
  );
  fill(place, h("h2", null, t("asking.title")), h("p", null, t("asking.text")), form, sides);
  call("GET /ui/api/questions").then(
    (found) => {
      questions = found.items;
      fill(list, questions.map((one) => h("option", { value: one })));
    },
    () => (all.hidden = true),
  );
}
