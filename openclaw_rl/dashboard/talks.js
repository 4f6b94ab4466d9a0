/** The list of conversations beside the chat. */

import { call } from "./wire.js";
import { h } from "./dom.js";
import { dayOf, when } from "./format.js";
import { Growing } from "./growing.js";
import { icon } from "./icons.js";
import { t } from "./i18n.js";
import { button, whose } from "./parts.js";

export class Talks {
  /** @param {{ me: import("./api").Me, user: string, choose: (user: string) => void, start: (isPrivate: boolean) => void }} given */
  constructor(given) {
    this.given = given;
    this.current = "";
    this.day = "";
    this.list = h("div", { class: "list", tabindex: "-1" });
    this.rows = new Growing({
      root: this.list,
      ask: (after) => {
        if (after === null) this.day = "";
        return call("GET /ui/api/sessions", { query: { user: given.user, after, limit: 50 } });
      },
      row: (row) => this.row(row),
      none: () => h("p", { class: "soft small talk" }, t("talks.none")),
    });
    this.list.append(this.rows.place);
    const select = whose(given);
    this.place = h(
      "nav",
      { class: "talks", id: "talks", "aria-label": t("talks.label") },
      h(
        "div",
        { class: "start" },
        button(t("new"), { class: "button", icon: "plus", onclick: () => given.start(false) }),
        h("button", { class: "button", type: "button", title: t("new.private"), "aria-label": t("new.private"), onclick: () => given.start(true) }, icon("lock")),
      ),
      select ? h("div", { class: "start" }, select) : null,
      this.list,
    );
    /** @type {Map<string, string>} */
    this.days = new Map();
  }

  /** @param {import("./api").ConversationRow} row */
  row(row) {
    // A day's name stands before its first row, also when the row is drawn anew.
    let day = this.days.get(row.id);
    if (day === undefined) {
      const own = dayOf(row.last_seen_at);
      day = own === this.day ? "" : own;
      this.day = own;
      this.days.set(row.id, day);
    }
    const link = h(
      "a",
      { class: "talk", href: `#/chat/${encodeURIComponent(row.id)}`, "aria-current": row.id === this.current ? "true" : null, "data-session": row.id },
      h("span", { class: "title" }, row.title || t("talks.untitled")),
      h("span", { class: "meta" }, row.is_private ? icon("lock") : null, row.is_private ? h("span", { class: "unseen" }, t("private")) : null, when(row.last_seen_at), row.client && row.client !== "page" ? h("span", null, row.client) : null),
    );
    return day ? h("div", null, h("h3", null, day), link) : link;
  }

  start() {
    this.days.clear();
    return this.rows.start();
  }

  /** @param {string} session */
  mark(session) {
    this.current = session;
    for (const each of this.list.querySelectorAll(".talk")) {
      const isIt = /** @type {HTMLElement} */ (each).dataset["session"] === session && session !== "";
      if (isIt) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    }
  }
}
