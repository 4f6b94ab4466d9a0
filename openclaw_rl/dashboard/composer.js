/** Where one types. What stands in it survives a reload, and a server that is gone. */

import { h } from "./dom.js";
import { t } from "./i18n.js";
import { iconButton } from "./parts.js";

export class Composer {
  /** @param {{ send: (text: string) => void, stop: () => void, toPrivate: (wanted: boolean) => void }} given */
  constructor(given) {
    this.given = given;
    this.name = "";
    this.isPrivate = false;
    this.isFixed = false;
    this.isGoing = false;
    this.field = h("textarea", { rows: 1, placeholder: t("composer.place"), "aria-label": t("composer.place"), enterkeyhint: "send" });
    this.lock = iconButton("lock", t("private.make"), () => given.toPrivate(!this.isPrivate), { pressed: false });
    this.note = h("span", { class: "note" });
    this.go = iconButton("send", t("send"), () => (this.isGoing ? given.stop() : this.submit()), { class: "button first go" });
    this.stopDrawing = iconButton("stop", t("stop"), () => undefined).firstElementChild;
    this.sendDrawing = this.go.firstElementChild;
    const box = h("div", { class: "box" }, this.field, h("div", { class: "row" }, h("div", { class: "row" }, this.lock, this.note), this.go));
    this.form = h("form", { class: "composer", "aria-label": t("composer.label") }, box);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.field.addEventListener("input", () => this.typed());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.submit();
      }
    });
    this.drawGo();
  }

  /** @param {string} name of the conversation that is typed in */
  open(name) {
    this.name = `typed:${name}`;
    this.field.value = sessionStorage.getItem(this.name) ?? "";
    this.fit();
    this.drawGo();
  }

  /** What was typed into a conversation before it had a name. @param {string} name */
  rename(name) {
    const text = this.field.value;
    sessionStorage.removeItem(this.name);
    this.name = `typed:${name}`;
    if (text) sessionStorage.setItem(this.name, text);
  }

  typed() {
    if (this.field.value) sessionStorage.setItem(this.name, this.field.value);
    else sessionStorage.removeItem(this.name);
    this.fit();
    this.drawGo();
  }

  submit() {
    const text = this.field.value.trim();
    if (!text || this.isGoing) return;
    this.given.send(text);
  }

  clear() {
    this.put("");
  }

  /** @param {string} text */
  put(text) {
    this.field.value = text;
    this.typed();
  }

  get text() {
    return this.field.value;
  }

  /** @param {boolean} isGoing */
  going(isGoing) {
    this.isGoing = isGoing;
    this.drawGo();
  }

  drawGo() {
    const words = t(this.isGoing ? "stop" : "send");
    this.go.title = words;
    this.go.setAttribute("aria-label", words);
    const drawing = this.isGoing ? this.stopDrawing : this.sendDrawing;
    if (drawing && this.go.firstElementChild !== drawing) this.go.replaceChildren(drawing);
    this.go.disabled = !this.isGoing && !this.field.value.trim();
  }

  /**
   * @param {boolean} isPrivate
   * @param {boolean} isFixed a conversation that is private stays so
   */
  setPrivate(isPrivate, isFixed) {
    this.isPrivate = isPrivate;
    this.lock.setAttribute("aria-pressed", String(isPrivate));
    const words = t(isFixed ? "private.is" : isPrivate ? "private.unmake" : "private.make");
    this.lock.title = words;
    this.lock.setAttribute("aria-label", words);
    this.lock.disabled = isFixed;
    this.note.textContent = isPrivate ? t("private.note") : "";
  }

  fit() {
    this.field.style.setProperty("height", "auto");
    this.field.style.setProperty("height", `${this.field.scrollHeight}px`);
  }
}
