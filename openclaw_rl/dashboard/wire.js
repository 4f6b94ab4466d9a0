/** Questions to the server, by the routes of api.d.ts, and what goes wrong with them. */

/** @typedef {import("./api").Routes} Routes */

/**
 * @template {keyof Routes} R
 * @typedef {Routes[R] extends { answer: infer A } ? A : never} Answer
 */
/**
 * @template {keyof Routes} R
 * @typedef {Routes[R] extends { events: infer E } ? E : never} Events
 */
/**
 * @template {keyof Routes} R
 * @typedef {Routes[R] extends { body: infer B } ? B : undefined} Body
 */
/** @typedef {Record<string, string | number | null | undefined>} Names */
/**
 * @template {keyof Routes} R
 * @typedef {{ path?: Names, query?: Names, body?: Body<R>, signal?: AbortSignal | null }} Given
 */

/** What the server, or the way to it, said instead of an answer. `status` 0: nobody answered. */
export class Refused extends Error {
  /**
   * @param {string} message
   * @param {number} status
   * @param {string} code
   */
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }

  get isGone() {
    return this.status === 0 || this.status === 502 || this.status === 504;
  }
}

/** What is told of every answer and every silence: live.js listens. */
export const way = new EventTarget();

/**
 * @template {keyof Routes} R
 * @param {R} route
 * @param {Given<R>} [given]
 * @returns {Promise<Answer<R>>}
 */
export async function call(route, given = {}) {
  const answer = await send(route, given);
  try {
    return await answer.json();
  } catch (error) {
    throw silence(error);
  }
}

/**
 * Each event of an answer that comes in pieces, as it comes.
 * @template {keyof Routes} R
 * @param {R} route
 * @param {Given<R>} given
 * @returns {AsyncGenerator<Events<R>>}
 */
export async function* stream(route, given) {
  const answer = await send(route, given);
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const blocks = rest.split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const lines = block.split("\n").filter((line) => line.startsWith("data:"));
        if (lines.length) yield JSON.parse(lines.map((line) => line.slice(5).trimStart()).join("\n"));
      }
    }
  } catch (error) {
    throw silence(error);
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

/**
 * @template {keyof Routes} R
 * @param {R} route
 * @param {Names} [path]
 * @param {Names} [query]
 * @returns {string}
 */
export function address(route, path = {}, query = {}) {
  const [, pattern = ""] = route.split(" ");
  const place = pattern.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(String(path[name] ?? "")));
  const asked = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(asked.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${place}?${text}` : place;
}

/**
 * @template {keyof Routes} R
 * @param {R} route
 * @param {Given<R>} given
 * @returns {Promise<Response>}
 */
async function send(route, { path, query, body, signal }) {
  const method = route.split(" ")[0] ?? "GET";
  /** @type {RequestInit} */
  const init = { method, credentials: "same-origin", cache: "no-store", signal: signal ?? null };
  if (method === "POST") {
    init.headers = { "Content-Type": "application/json" };
    init.body = JSON.stringify(body ?? {});
  }
  let answer;
  try {
    answer = await fetch(address(route, path, query), init);
  } catch (error) {
    throw silence(error);
  }
  if (answer.ok) return answer;
  /** @type {import("./api").Failure | null} */
  const failure = await answer.json().catch(() => null);
  const refused = new Refused(failure?.error?.message ?? answer.statusText, answer.status, failure?.error?.code ?? "");
  if (answer.status === 401) way.dispatchEvent(new Event("signed-out"));
  if (refused.isGone) way.dispatchEvent(new Event("gone"));
  throw refused;
}

/** @param {unknown} error */
function silence(error) {
  if (error instanceof Refused || (error instanceof DOMException && error.name === "AbortError")) return error;
  way.dispatchEvent(new Event("gone"));
  return new Refused("", 0, "gone");
}
