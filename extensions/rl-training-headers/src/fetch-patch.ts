/**
 * Headers for OpenClaw up to 2026.3.13, which has no hooks around a provider's requests: its model calls go through
 * the global `fetch`, within the asynchronous context in which `before_prompt_build` was called.
 *
 * Only POST requests to the given addresses are touched, and no header that a request already has.
 */

import type { Headers as HeaderMap } from "./openclaw.js";

type Fetch = typeof globalThis.fetch;

const PATCH = Symbol.for("openclaw-rl.fetch-patch");

type Patched = Fetch & { [PATCH]?: Fetch };

/** Puts our `fetch` around the one there is; one of an earlier registration is taken off first. */
export function patchFetch(
  host: { fetch: Fetch },
  baseUrls: readonly string[],
  headersFor: (body: unknown) => HeaderMap | undefined,
): void {
  const current: Patched = host.fetch;
  const original = current[PATCH] ?? current;
  const patched: Patched = async (input, init) => {
    const request = input instanceof Request ? input : undefined;
    const method = init?.method ?? request?.method ?? "GET";
    if (method.toUpperCase() !== "POST" || !isUnder(baseUrls, request?.url ?? String(input))) {
      return original(input, init);
    }
    const body = init?.body ?? (await request?.clone().text());
    const ours = headersFor(typeof body === "string" ? parsed(body) : undefined);
    if (ours === undefined) {
      return original(input, init);
    }
    const headers = new Headers(init?.headers ?? request?.headers);
    for (const [name, value] of Object.entries(ours)) {
      if (!headers.has(name)) {
        headers.set(name, value);
      }
    }
    return original(input, { ...init, headers });
  };
  patched[PATCH] = original;
  host.fetch = patched;
}

/** Whether an address lies under one of the bases: "http://a/v1" holds "http://a/v1/x", not "http://a/v12". */
export function isUnder(baseUrls: readonly string[], url: string): boolean {
  return baseUrls.some((base) => `${url.replace(/[?#].*$/, "")}/`.startsWith(`${base.replace(/\/+$/, "")}/`));
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body) as unknown;
  } catch {
    return undefined;
  }
}
