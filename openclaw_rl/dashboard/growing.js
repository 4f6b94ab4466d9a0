/**
 * A list of any length, asked for page after page as one scrolls. Pages far out of sight give their elements back and
 * keep their height, so that ten thousand rows scroll like fifty.
 */

import { h } from "./dom.js";
import { t } from "./i18n.js";
import { button, errorWords } from "./parts.js";

const NEAR = "1800px 0px";

/**
 * @template T
 * @typedef {{ items: T[], next: string | null }} Page
 */
/**
 * @template T
 * @typedef {{ place: HTMLElement, items: T[], isBuilt: boolean }} Chunk
 */

/** @template T */
export class Growing {
  /**
   * @param {{ ask: (after: string | null) => Promise<Page<T>>, row: (item: T) => Node, root?: Element | null, none?: () => Node, isQuiet?: () => boolean, upwards?: boolean, grew?: (change: () => void) => void }} given
   */
  constructor(given) {
    this.given = given;
    this.rows = h("div", { class: "growing" });
    this.foot = h("div", { class: "more" });
    this.place = given.upwards ? h("div", null, this.foot, this.rows) : h("div", null, this.rows, this.foot);
    /** @type {Chunk<T>[]} */
    this.chunks = [];
    this.next = /** @type {string | null} */ (null);
    this.isAsking = false;
    this.turn = 0;
    const sight = { root: given.root ?? null, rootMargin: NEAR };
    this.sight = new IntersectionObserver((seen) => seen.forEach((one) => this.passed(one)), sight);
    this.end = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && this.next !== null && this.more(), sight);
    this.end.observe(this.foot);
  }

  /** From the beginning, in place of what is there. */
  async start() {
    const turn = ++this.turn;
    this.isAsking = true;
    try {
      const page = await this.given.ask(null);
      if (turn !== this.turn) return;
      this.clear();
      this.add(page);
      if (!page.items.length && page.next === null && this.given.none && !this.given.isQuiet?.()) this.rows.append(this.given.none());
    } catch (error) {
      if (turn === this.turn) this.failed(error);
    } finally {
      if (turn === this.turn) this.isAsking = false;
    }
  }

  async more() {
    if (this.isAsking || this.next === null) return;
    const turn = this.turn;
    this.isAsking = true;
    try {
      const page = await this.given.ask(this.next);
      if (turn === this.turn) this.add(page);
    } catch (error) {
      if (turn === this.turn) this.failed(error);
    } finally {
      if (turn === this.turn) this.isAsking = false;
    }
  }

  /** @param {Page<T>} page */
  add(page) {
    this.next = page.next;
    const place = h("div", { class: "chunk" });
    const chunk = { place, items: page.items, isBuilt: false };
    const change = () => {
      this.build(chunk);
      if (this.given.upwards) this.rows.prepend(place);
      else this.rows.append(place);
      this.foot.replaceChildren(...(this.next === null ? [] : [button(t("more"), { class: "quiet", onclick: () => this.more() })]));
    };
    if (this.given.grew) this.given.grew(change);
    else change();
    if (this.given.upwards) this.chunks.unshift(chunk);
    else this.chunks.push(chunk);
    this.sight.observe(place);
    // The end may still be in sight: an observer speaks only of what changes.
    this.end.unobserve(this.foot);
    this.end.observe(this.foot);
  }

  /** @param {Chunk<T>} chunk */
  build(chunk) {
    chunk.place.replaceChildren(...chunk.items.map((item) => this.given.row(item)));
    chunk.place.style.removeProperty("height");
    chunk.isBuilt = true;
  }

  /** @param {IntersectionObserverEntry} entry */
  passed(entry) {
    const chunk = this.chunks.find((one) => one.place === entry.target);
    if (!chunk) return;
    if (entry.isIntersecting && !chunk.isBuilt) this.build(chunk);
    else if (!entry.isIntersecting && chunk.isBuilt && !chunk.place.querySelector("[data-stay]") && !chunk.place.contains(document.activeElement)) {
      chunk.place.style.setProperty("height", `${chunk.place.offsetHeight}px`);
      chunk.place.replaceChildren();
      chunk.isBuilt = false;
    }
  }

  /** @param {unknown} error */
  failed(error) {
    const again = button(t("try-again"), { class: "quiet", onclick: () => (this.chunks.length ? this.more() : this.start()) });
    this.foot.replaceChildren(h("span", { class: "soft" }, errorWords(error) || t("failed.gone")), again);
  }

  clear() {
    this.chunks.forEach((chunk) => this.sight.unobserve(chunk.place));
    this.chunks = [];
    this.rows.replaceChildren();
  }

  close() {
    this.turn += 1;
    this.sight.disconnect();
    this.end.disconnect();
  }
}
