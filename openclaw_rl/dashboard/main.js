/** The frame: who is signed in, the five pages, theme and language, and whether the server is there. */

import { call, Refused, way } from "./wire.js";
import { ChatPage } from "./chat.js";
import { fill, h, the } from "./dom.js";
import { rewriteTimes } from "./format.js";
import { icon } from "./icons.js";
import { language, speak as speakLanguage, t } from "./i18n.js";
import { LessonsPage } from "./lessons.js";
import { LiveLine } from "./live.js";
import { MachinePage } from "./machine.js";
import { button, speak, toast } from "./parts.js";
import { appearance, SettingsPage } from "./settings.js";
import { signIn } from "./sign_in.js";
import { VersionsPage } from "./versions.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./app.js").Page} Page */

/** @type {Record<string, new (app: App, place: HTMLElement) => Page>} */
const PAGES = { chat: ChatPage, lessons: LessonsPage, versions: VersionsPage, machine: MachinePage, settings: SettingsPage };
const CLOCK_S = 20;

class Frame {
  /** @param {import("./api").Me} me */
  constructor(me) {
    this.me = me;
    const kept = sessionStorage.getItem("user") ?? "";
    this.user = me.users.includes(kept) ? kept : me.user;
    this.name = "";
    /** @type {Page | null} */
    this.page = null;
    this.isFirstHello = true;
    this.isSignedIn = true;
    this.live = new LiveLine((event) => this.heard(event), (isThere) => this.changed(isThere));
    addEventListener("hashchange", () => this.route());
    addEventListener("reword", () => this.reword());
    way.addEventListener("signed-out", () => this.signedOut());
    setInterval(rewriteTimes, CLOCK_S * 1000);
    the(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      the("#main").focus();
    });
  }

  start() {
    this.draw();
    this.route();
    this.live.open();
  }

  /** All words of the frame; once more in another language. */
  draw() {
    the(".skip").textContent = t("skip");
    const nav = Object.keys(PAGES).map((name) => h("a", { href: `#/${name}`, "data-page": name }, icon(name), h("span", null, t(`nav.${name}`))));
    fill(
      the("#rail"),
      h("a", { class: "brand", href: "#/chat" }, mark(), h("span", null, "OpenClaw-RL")),
      h("nav", { id: "nav", "aria-label": t("nav.label") }, nav),
      h("div", { class: "rail-foot" }, h("div", { class: "who" }, h("div", null, this.me.user), h("div", null, this.me.model)), appearance(this.me)),
    );
    this.mark();
  }

  mark() {
    for (const link of document.querySelectorAll("#nav a")) {
      const isIt = /** @type {HTMLElement} */ (link).dataset["page"] === this.name;
      if (isIt) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  /** The same page in another language. */
  async reword() {
    this.draw();
    this.name = "";
    this.route();
  }

  route() {
    if (!this.isSignedIn) return;
    const [place = "", asked = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const [name = "", ...path] = place.split("/").map(decode);
    const known = name in PAGES ? name : "chat";
    const query = new URLSearchParams(asked);
    const user = query.get("user");
    if (user && user !== this.user && this.me.users.includes(user)) {
      this.user = user;
      sessionStorage.setItem("user", user);
      this.name = "";
    }
    if (known !== this.name) {
      this.page?.leave();
      const make = PAGES[known];
      if (!make) return;
      this.name = known;
      const main = the("#main");
      fill(main);
      scrollTo(0, 0);
      this.page = new make(this, main);
      document.title = `${t(`nav.${known}`)} · OpenClaw-RL`;
      this.mark();
    }
    this.page?.go(path, query);
  }

  /** @param {string} user */
  choose(user) {
    this.user = user;
    sessionStorage.setItem("user", user);
    const hash = `#/${this.name}`;
    this.name = "";
    if (location.hash === hash) this.route();
    else location.hash = hash;
  }

  async refresh() {
    this.me = await call("GET /ui/api/me");
  }

  /** @param {import("./live.js").Live} event */
  heard(event) {
    if (event.event === "hello") {
      this.me = { ...this.me, version: event.version };
      if (!this.isFirstHello) this.page?.back();
      this.isFirstHello = false;
    }
    if (event.event === "version" && event.user === this.me.user && event.answers !== this.me.version) {
      this.me = { ...this.me, version: event.answers };
      toast(event.answers === "v0" ? t("live.base") : t("live.version", { version: event.answers }));
    }
    this.page?.heard(event);
  }

  /** @param {boolean} isThere */
  changed(isThere) {
    const place = the("#notice");
    document.documentElement.dataset["server"] = isThere ? "there" : "gone";
    clearTimeout(this.calm);
    if (isThere) {
      fill(place, h("div", { class: "banner calm" }, icon("check"), h("span", null, t("server.back"))));
      this.calm = setTimeout(() => fill(place), 4000);
    } else {
      const words = h("span", null, h("b", null, t("server.gone")), " ", t("server.gone.text"));
      fill(place, h("div", { class: "banner" }, icon("warn"), words, button(t("try-again"), { class: "button small", onclick: () => this.live.open() })));
      this.refresh().catch((error) => {
        if (!(error instanceof Refused)) throw error;
      });
    }
  }

  async signedOut() {
    if (!this.isSignedIn) return;
    this.isSignedIn = false;
    this.live.close();
    fill(the("#notice"));
    this.page?.leave();
    this.page = null;
    this.name = "";
    this.me = await signIn(the("#main"));
    this.isSignedIn = true;
    this.user = this.me.user;
    this.start();
  }
}

function mark() {
  const drawing = icon("again");
  drawing.classList.replace("icon", "mark");
  return drawing;
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Who is signed in: by the link in the address, which is used once and is then gone from it, or by the cookie. */
async function whoIs() {
  const link = /^#link=(.+)$/.exec(location.hash)?.[1];
  if (link) {
    history.replaceState(null, "", `${location.pathname}#/chat`);
    try {
      return await call("POST /ui/api/link", { body: { link: decode(link) } });
    } catch (error) {
      if (!(error instanceof Refused) || error.isGone) throw error;
      speak(error.message);
      const me = await call("GET /ui/api/me").catch(() => null);
      if (me) return me;
      toast(error.message, true);
      return null;
    }
  }
  try {
    return await call("GET /ui/api/me");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return null;
    throw error;
  }
}

async function main() {
  const chosen = localStorage.getItem("language") ?? navigator.language.split("-")[0] ?? "en";
  await speakLanguage(chosen);
  document.documentElement.lang = language();
  for (;;) {
    try {
      const me = (await whoIs()) ?? (await signIn(the("#main")));
      new Frame(me).start();
      return;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(the("#notice"), h("div", { class: "banner" }, icon("warn"), t("server.gone"), " ", error.message));
      await new Promise((resolve) => setTimeout(resolve, 1500));
      fill(the("#notice"));
    }
  }
}

main();
