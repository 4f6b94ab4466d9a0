/** The plugin's entry in OpenClaw's configuration -> checked settings, and what is to be said about it. */

export interface Settings {
  /** Keys under models.providers: the only addresses that ever get our headers. */
  readonly providers: readonly string[];
  readonly tracksSessions: boolean;
  /** Where the end of a session is posted instead of to each provider. */
  readonly rolloutEndpoint?: string;
  readonly remarks: readonly string[];
}

export const DEFAULT_PROVIDERS: readonly string[] = ["rl"];

/** OpenClaw has checked the types by the manifest's schema; older versions have not. */
export function readSettings(raw: Readonly<Record<string, unknown>> = {}): Settings {
  const remarks: string[] = [];
  const { providers, rollout_endpoint: endpoint, training_mode: mode, session_tracking: tracking } = raw;
  const named = Array.isArray(providers) ? providers.filter((id) => typeof id === "string" && id !== "") : [];
  if (providers !== undefined && named.length === 0) {
    remarks.push(`providers names no provider; ${DEFAULT_PROVIDERS.join(", ")} is used`);
  }
  if (mode !== undefined && mode !== "async") {
    remarks.push(`training_mode ${JSON.stringify(mode)} has no effect: training always runs in the background`);
  }
  const rolloutEndpoint = typeof endpoint === "string" && URL.canParse(endpoint) ? endpoint : undefined;
  if (endpoint !== undefined && rolloutEndpoint === undefined) {
    remarks.push(`rollout_endpoint ${JSON.stringify(endpoint)} is no URL; the end of a session goes to the provider`);
  }
  return {
    providers: named.length > 0 ? (named as string[]) : DEFAULT_PROVIDERS,
    tracksSessions: tracking !== false,
    ...(rolloutEndpoint === undefined ? {} : { rolloutEndpoint }),
    remarks,
  };
}
