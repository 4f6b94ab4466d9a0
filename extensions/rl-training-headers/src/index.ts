/**
 * The plugin: puts the pure parts together with OpenClaw's hooks. All decisions are made in the other files.
 *
 *     run begins   before_model_resolve, before_prompt_build   -> Runs: what began it
 *     model call   wrapStreamFn, resolveTransportTurnState     -> headers      (up to 2026.3.13: a patched fetch)
 *     title, slug  wrapSimpleCompletionStreamFn                -> headers
 *     session over session_end                                 -> POST
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";

import { patchFetch } from "./fetch-patch.js";
import type { Headers, PluginApi, RunContext, StreamContext, StreamFn } from "./openclaw.js";
import { Runs } from "./runs.js";
import { endNotices, type EndNotice } from "./session-end.js";
import { readSettings, type Settings } from "./settings.js";
import {
  headersOf,
  isHeaderValue,
  parseRequestId,
  SIMPLE_TURN,
  turnOfCall,
  turnOfRequest,
  type Turn,
} from "./turns.js";

const ID = "rl-training-headers";
const NOTICE_TIMEOUT_MS = 3000;

export default {
  id: ID,
  name: "RL training headers",
  description: "Tells OpenClaw-RL which session and which kind of turn a model request belongs to.",
  register,
};

export function register(api: PluginApi): void {
  const settings = readSettings(api.pluginConfig);
  // Up to 2026.3.13 there are neither modes of registration nor hooks around streams.
  const isOld = api.registrationMode === undefined;
  const remarks = [...settings.remarks];
  if (isOld) {
    wrapFetch(api, settings);
  } else {
    wrapProvider(api, settings);
    if (api.config.plugins?.entries?.[ID]?.hooks?.allowConversationAccess !== true) {
      remarks.push(
        "without access to conversation hooks every turn is sent as side/unknown and nothing is learned; " +
          `run: openclaw config set plugins.entries.${ID}.hooks.allowConversationAccess true --strict-json`,
      );
    }
  }
  // What is registered in other modes is only looked at.
  if (isOld || api.registrationMode === "full") {
    remarks.forEach((remark) => api.logger.warn(`${ID}: ${remark}`));
  }
  api.on("session_end", async (event) => {
    const notices = endNotices(event, settings, api.config.models?.providers);
    await Promise.all(notices.map((notice) => send(api, notice)));
  });
}

function wrapProvider(api: PluginApi, settings: Settings): void {
  const runs = new Runs();
  api.on("before_model_resolve", (_event, run) => runs.remember(run));
  api.on("before_prompt_build", (_event, run) => runs.remember(run));
  api.registerProvider({
    id: ID,
    label: "OpenClaw-RL",
    auth: [],
    hookAliases: settings.providers,
    wrapStreamFn: (context) =>
      withHeaders(context, settings, (prompt, call) => {
        const run = runs.find(parseRequestId(call.requestId)?.runId);
        return turnOfCall(call, prompt, run);
      }),
    wrapSimpleCompletionStreamFn: (context) => withHeaders(context, settings, () => SIMPLE_TURN),
    // The only place that knows the session of a compaction.
    resolveTransportTurnState: ({ sessionId }) => {
      const isNamed = settings.tracksSessions && sessionId !== undefined && isHeaderValue(sessionId);
      return { headers: isNamed ? { "X-Session-Id": sessionId } : {} };
    },
  });
}

type Describe = (prompt: Parameters<StreamFn>[1], call: NonNullable<Parameters<StreamFn>[2]>) => Turn;

function withHeaders({ streamFn }: StreamContext, settings: Settings, describe: Describe): StreamFn | undefined {
  if (streamFn === undefined) {
    return undefined;
  }
  return (model, prompt, options) => {
    const headers = headersOf(describe(prompt, options ?? {}), settings.tracksSessions);
    return streamFn(model, prompt, { ...options, headers: { ...options?.headers, ...headers } });
  };
}

function wrapFetch(api: PluginApi, settings: Settings): void {
  const running = new AsyncLocalStorage<{ run: RunContext; runId: string; numCalls: number; isOver: boolean }>();
  const headersFor = (body: unknown): Headers | undefined => {
    const state = running.getStore();
    if (state === undefined || state.isOver) {
      return undefined; // nothing is known; the server infers what it can
    }
    state.numCalls += 1;
    return headersOf(turnOfRequest(body, state.run, state.runId, state.numCalls), settings.tracksSessions);
  };
  const baseUrls = settings.providers.flatMap((id) => api.config.models?.providers?.[id]?.baseUrl ?? []);
  let isPatched = false;
  api.on("before_prompt_build", (_event, run) => {
    if (!isPatched) {
      patchFetch(globalThis, baseUrls, headersFor);
      isPatched = true;
    }
    running.enterWith({ run, runId: run.runId ?? randomUUID(), numCalls: 0, isOver: false });
  });
  // A context is inherited by whatever is started in it, also by what outlives the run.
  api.on("agent_end", () => {
    const state = running.getStore();
    if (state !== undefined) {
      state.isOver = true;
    }
  });
}

async function send(api: PluginApi, { url, provider, body }: EndNotice): Promise<void> {
  try {
    const key = await apiKey(api, provider);
    const answer = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json", ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(NOTICE_TIMEOUT_MS),
    });
    if (!answer.ok) {
      api.logger.warn(`${ID}: ${url} answered ${answer.status} to the end of a session; it will expire there instead`);
    }
  } catch (error) {
    api.logger.warn(`${ID}: ${url} was not told the end of a session (${String(error)}); it will expire there instead`);
  }
}

async function apiKey(api: PluginApi, provider: string): Promise<string | undefined> {
  const configured = api.config.models?.providers?.[provider]?.apiKey;
  if (typeof configured === "string") {
    return configured;
  }
  const resolved = await api.runtime?.modelAuth?.resolveApiKeyForProvider?.({ provider, cfg: api.config });
  return resolved?.apiKey;
}
