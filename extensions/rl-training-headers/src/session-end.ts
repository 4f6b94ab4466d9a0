/**
 * The end of a session in OpenClaw -> one POST to whoever learns from it. No model request is made at that moment, so
 * that no header could carry it.
 */

import type { ProviderConfig, SessionEndEvent } from "./openclaw.js";
import type { Settings } from "./settings.js";

export interface EndNotice {
  readonly url: string;
  /** The provider whose key opens that address. */
  readonly provider: string;
  readonly body: { session_id: string; reason: string; next_session_id: string | null };
}

/** A conversation goes on after a compaction, a restart or a shutdown. Up to 2026.3.13 no reason is given. */
const ENDING: ReadonlySet<string | undefined> = new Set([undefined, "new", "reset", "idle", "daily", "deleted"]);

export function endNotices(
  event: SessionEndEvent,
  settings: Settings,
  providers: Readonly<Record<string, ProviderConfig | undefined>> = {},
): EndNotice[] {
  if (!settings.tracksSessions || !ENDING.has(event.reason)) {
    return [];
  }
  const body = {
    session_id: event.sessionId,
    reason: event.reason ?? "unknown",
    next_session_id: event.nextSessionId ?? null,
  };
  const owner = settings.providers.find((id) => providers[id]?.baseUrl) ?? settings.providers[0]!;
  if (settings.rolloutEndpoint !== undefined) {
    return [{ url: settings.rolloutEndpoint, provider: owner, body }];
  }
  const notices = new Map<string, EndNotice>();
  for (const provider of settings.providers) {
    const baseUrl = providers[provider]?.baseUrl;
    if (baseUrl === undefined) {
      continue;
    }
    const url = `${root(baseUrl)}/v1/sessions/${encodeURIComponent(event.sessionId)}/done`;
    if (!notices.has(url)) {
      notices.set(url, { url, provider, body });
    }
  }
  return [...notices.values()];
}

/** Providers of Anthropic's dialect are configured without the /v1. */
function root(baseUrl: string): string {
  return baseUrl.replace(/\/+$/, "").replace(/\/v1$/, "");
}
