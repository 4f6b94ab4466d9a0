/** The door: a key for the session cookie. The key is sent once and kept nowhere. */

import { call, Refused } from "./wire.js";
import { fill, h, the } from "./dom.js";
import { t } from "./i18n.js";
import { command, errorWords } from "./parts.js";

/**
 * Shows the door until somebody has come in.
 * @param {HTMLElement} place
 * @returns {Promise<import("./api").Me>}
 */
export function signIn(place) {
  return new Promise((resolve) => {
    const key = h("input", { type: "password", name: "key", autocomplete: "current-password", required: true, spellcheck: "false" });
    const wrong = h("p", { class: "failed", role: "alert" });
    const enter = h("button", { class: "button first", type: "submit" }, t("sign-in.enter"));
    const form = h("form", { class: "card rate" }, h("label", { class: "field" }, h("span", { class: "soft" }, t("sign-in.key")), key), wrong, enter);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      enter.disabled = true;
      try {
        const me = await call("POST /ui/api/sign-in", { body: { key: key.value.trim() } });
        key.value = "";
        fill(place);
        resolve(me);
      } catch (error) {
        fill(wrong, error instanceof Refused && !error.isGone ? error.message : errorWords(error) || t("sign-in.wrong"));
      } finally {
        enter.disabled = false;
      }
    });
    fill(the("#rail"));
    fill(
      place,
      h(
        "div",
        { class: "page" },
        h("header", null, h("h1", null, t("sign-in.title")), h("p", null, t("sign-in.text"))),
        h("div", { class: "card" }, h("h2", null, t("sign-in.link")), h("p", { class: "soft" }, t("sign-in.link.text")), command("openclaw-rl page")),
        h("div", { class: "section" }, h("h2", null, t("sign-in.or")), form),
      ),
    );
    key.focus();
  });
}
