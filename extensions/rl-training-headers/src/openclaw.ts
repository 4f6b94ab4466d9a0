/**
 * The small part of OpenClaw's plugin API that is used here, as our own types: OpenClaw itself is a program of 650 MB
 * and no dependency. Every field that some version leaves out is optional.
 */

/** What the hooks of a run tell about it. */
export interface RunContext {
  /** Absent up to 2026.3.13. */
  runId?: string;
  sessionId?: string;
  sessionKey?: string;
  /** What began the run: user, manual, overflow, heartbeat, cron, memory, … */
  trigger?: string;
  /** Where the input came from: external_user, inter_session, internal_system, … */
  inputProvenance?: { kind?: string };
}

export interface SessionEndEvent {
  sessionId: string;
  sessionKey?: string;
  /** new, reset, idle, daily, compaction, deleted, shutdown, restart, unknown; absent up to 2026.3.13. */
  reason?: string;
  nextSessionId?: string;
}

export type Headers = Record<string, string>;

/** The prompt of one model call. */
export interface Prompt {
  systemPrompt?: string;
  tools?: readonly unknown[];
}

export interface StreamOptions {
  requestId?: string;
  sessionId?: string;
  headers?: Headers;
}

export type StreamFn = (model: unknown, prompt: Prompt, options?: StreamOptions) => unknown;

export interface StreamContext {
  streamFn?: StreamFn;
}

export interface TransportTurnContext {
  sessionId?: string;
}

export interface ProviderPlugin {
  id: string;
  label: string;
  auth: readonly never[];
  hookAliases: readonly string[];
  wrapStreamFn(context: StreamContext): StreamFn | undefined;
  wrapSimpleCompletionStreamFn(context: StreamContext): StreamFn | undefined;
  resolveTransportTurnState(context: TransportTurnContext): { headers: Headers };
}

export interface ProviderConfig {
  baseUrl?: string;
  /** A key, or a reference to a secret. */
  apiKey?: unknown;
}

export interface Config {
  models?: { providers?: Record<string, ProviderConfig | undefined> };
  plugins?: { entries?: Record<string, { hooks?: { allowConversationAccess?: boolean } } | undefined> };
}

export interface PluginApi {
  /** Absent up to 2026.3.13. Other modes than "full" only ask what a plugin would register. */
  registrationMode?: string;
  config: Config;
  pluginConfig?: Record<string, unknown>;
  runtime?: {
    modelAuth?: {
      resolveApiKeyForProvider?(query: { provider: string; cfg: Config }): Promise<{ apiKey?: string } | undefined>;
    };
  };
  logger: { warn(line: string): void };
  on(
    hook: "before_model_resolve" | "before_prompt_build" | "agent_end",
    act: (event: unknown, run: RunContext) => void,
  ): void;
  on(hook: "session_end", act: (event: SessionEndEvent, session: unknown) => Promise<void>): void;
  registerProvider(provider: ProviderPlugin): void;
}
