/**
 * What changes on the server while the page is open, and whether the server is there. One stream of events; it is given
 * up while the page is out of sight, as a browser allows a server few of them.
 */

import { way } from "./wire.js";

/** @typedef {import("./wire.js").Events<"GET /ui/api/events">} Live */

const NAMES = /** @type {const} */ (["hello", "turn", "correction", "version", "machine"]);
const MOST_S = 5;
const OUT_OF_SIGHT_S = 20;

export class LiveLine {
  /**
   * @param {(event: Live) => void} heard
   * @param {(isThere: boolean) => void} changed
   */
  constructor(heard, changed) {
    this.heard = heard;
    this.changed = changed;
    /** @type {EventSource | null} */
    this.source = null;
    this.isThere = true;
    this.wait_s = 0.5;
    this.timer = 0;
    this.sight = 0;
    way.addEventListener("gone", () => this.lost());
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.sight);
      if (document.visibilityState === "hidden") this.sight = setTimeout(() => this.close(), OUT_OF_SIGHT_S * 1000);
      else if (!this.source) this.open();
    });
    addEventListener("online", () => this.open());
  }

  open() {
    this.close();
    const source = new EventSource("/ui/api/events");
    this.source = source;
    for (const name of NAMES) {
      source.addEventListener(name, (event) => {
        this.wait_s = 0.5;
        if (!this.isThere) {
          this.isThere = true;
          this.changed(true);
        }
        this.heard(JSON.parse(/** @type {MessageEvent<string>} */ (event).data));
      });
    }
    source.addEventListener("error", () => {
      if (this.source === source) this.lost();
    });
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  /** Nobody answers: it is told once, and asked again until somebody does. */
  lost() {
    this.close();
    if (this.isThere) {
      this.isThere = false;
      this.changed(false);
    }
    if (document.visibilityState === "hidden") return;
    this.timer = setTimeout(() => this.open(), this.wait_s * 1000);
    this.wait_s = Math.min(MOST_S, this.wait_s * 1.6);
  }
}
