import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";

import { register } from "../src/index.js";
import type { PluginApi, ProviderPlugin, RunContext, SessionEndEvent, StreamOptions } from "../src/openclaw.js";

const AGENT = { systemPrompt: "You are an assistant.", tools: [{}] };
const ACCESS = { plugins: { entries: { "rl-training-headers": { hooks: { allowConversationAccess: true } } } } };
const RUN: RunContext = { runId: "r", sessionId: "s", sessionKey: "agent:main:main", trigger: "user" };

/** As much of OpenClaw as the plugin sees, and what the plugin told it. */
class Host {
  readonly warnings: string[] = [];
  readonly hooks = new Map<string, (event: never, context: RunContext) => unknown>();
  readonly providers: ProviderPlugin[] = [];

  constructor(parts: { [K in keyof PluginApi]?: PluginApi[K] | undefined } = {}) {
    register({
      registrationMode: "full",
      config: ACCESS,
      logger: { warn: (line) => this.warnings.push(line) },
      on: (hook: string, act: (event: never, context: RunContext) => unknown) => void this.hooks.set(hook, act),
      registerProvider: (provider) => void this.providers.push(provider),
      ...parts,
    } as PluginApi);
  }

  begin(run: RunContext): void {
    this.hooks.get("before_prompt_build")!(undefined as never, run);
  }

  end(event: SessionEndEvent): unknown {
    return this.hooks.get("session_end")!(event as never, {});
  }

  /** The headers with which a call leaves. */
  call(
    hook: "wrapStreamFn" | "wrapSimpleCompletionStreamFn",
    options: StreamOptions | undefined,
  ): Record<string, string> {
    let sent: StreamOptions | undefined;
    const stream = this.providers[0]![hook]({ streamFn: (_model, _prompt, given) => (sent = given) })!;
    stream({}, AGENT, options);
    return sent!.headers!;
  }
}

describe("in current OpenClaw", () => {
  it("attaches to our providers only, and never to fetch", () => {
    const before = globalThis.fetch;
    const host = new Host({ pluginConfig: { providers: ["rl", "mine"] } });
    host.begin(RUN);
    expect(host.providers.map(({ id, hookAliases }) => [id, hookAliases])).toEqual([
      ["rl-training-headers", ["rl", "mine"]],
    ]);
    expect(globalThis.fetch).toBe(before);
    expect(host.warnings).toEqual([]);
  });
  it("adds headers to those of a call", () => {
    const host = new Host();
    host.begin(RUN);
    const headers = host.call("wrapStreamFn", {
      requestId: "r:model:1",
      sessionId: "s",
      headers: { traceparent: "t" },
    });
    expect(headers).toMatchObject({
      traceparent: "t",
      "X-Turn-Type": "main",
      "X-Session-Id": "s",
      "X-Call-Index": "1",
    });
  });
  it("keeps concurrent runs apart", () => {
    const host = new Host();
    host.begin(RUN);
    host.begin({ runId: "q", sessionId: "t", trigger: "heartbeat" });
    expect(host.call("wrapStreamFn", { requestId: "r:model:2" })).toMatchObject({
      "X-Session-Id": "s",
      "X-Turn-Kind": "user",
    });
    expect(host.call("wrapStreamFn", { requestId: "q:model:2" })).toMatchObject({
      "X-Session-Id": "t",
      "X-Turn-Kind": "heartbeat",
    });
  });
  it("marks single calls, with and without options, as side", () => {
    expect(new Host().call("wrapSimpleCompletionStreamFn", undefined)).toEqual({
      "X-Turn-Type": "side",
      "X-Turn-Kind": "simple",
    });
  });
  it("names the session where only the transport knows it", () => {
    const host = new Host();
    expect(host.providers[0]!.resolveTransportTurnState({ sessionId: "s" }).headers).toEqual({ "X-Session-Id": "s" });
    expect(host.providers[0]!.resolveTransportTurnState({}).headers).toEqual({});
    const silent = new Host({ pluginConfig: { session_tracking: false } });
    expect(silent.providers[0]!.resolveTransportTurnState({ sessionId: "s" }).headers).toEqual({});
  });
  it("without access says so once, with the remedy, and marks calls side", () => {
    const host = new Host({ config: {} });
    expect(host.warnings).toHaveLength(1);
    expect(host.warnings[0]).toContain("allowConversationAccess true");
    expect(host.call("wrapStreamFn", { requestId: "r:model:1", sessionId: "s" })).toMatchObject({
      "X-Turn-Type": "side",
      "X-Turn-Kind": "unknown",
      "X-Session-Id": "s",
    });
    expect(new Host({ config: {}, registrationMode: "discovery" }).warnings).toEqual([]);
  });
});

describe("over HTTP", () => {
  const closing: (() => void)[] = [];
  afterEach(() => closing.splice(0).forEach((close) => close()));

  async function server(
    status = 200,
  ): Promise<{ url: string; seen: { path: string; headers: Record<string, unknown>; body: unknown }[] }> {
    const seen: { path: string; headers: Record<string, unknown>; body: unknown }[] = [];
    const http = createServer(async (request, response) => {
      let text = "";
      for await (const piece of request) {
        text += String(piece);
      }
      seen.push({ path: request.url!, headers: request.headers, body: JSON.parse(text) });
      response.writeHead(status).end("{}");
    });
    await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
    closing.push(() => http.close());
    return { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`, seen };
  }
  const ending: SessionEndEvent = { sessionId: "s", reason: "reset", nextSessionId: "s" };

  it("posts the end of a session with the provider's key", async () => {
    const { url, seen } = await server();
    const host = new Host({
      config: { ...ACCESS, models: { providers: { rl: { baseUrl: `${url}/v1`, apiKey: "k" } } } },
    });
    await host.end(ending);
    expect(seen).toMatchObject([
      {
        path: "/v1/sessions/s/done",
        headers: { authorization: "Bearer k" },
        body: { session_id: "s", reason: "reset", next_session_id: "s" },
      },
    ]);
    expect(host.warnings).toEqual([]);
  });
  it("asks OpenClaw for a key that is kept elsewhere", async () => {
    const { url, seen } = await server();
    const config = { ...ACCESS, models: { providers: { rl: { baseUrl: url, apiKey: { source: "env" } } } } };
    const modelAuth = {
      resolveApiKeyForProvider: async ({ provider }: { provider: string }) => ({ apiKey: `key of ${provider}` }),
    };
    await new Host({ config, runtime: { modelAuth } }).end(ending);
    expect(seen[0]?.headers).toMatchObject({ authorization: "Bearer key of rl" });
  });
  it("says when the end was not taken, and goes on", async () => {
    const refusing = await server(404);
    for (const baseUrl of [refusing.url, "http://127.0.0.1:1"]) {
      const host = new Host({ config: { ...ACCESS, models: { providers: { rl: { baseUrl } } } } });
      await host.end(ending);
      expect(host.warnings).toHaveLength(1);
    }
  });
  it("wraps fetch in old OpenClaw, each run in its own context", async () => {
    const before = globalThis.fetch;
    const { url, seen } = await server();
    const other = await server();
    const models = { providers: { rl: { baseUrl: `${url}/v1` } } };
    const host = new Host({ config: { models }, registrationMode: undefined });
    expect(host.providers).toEqual([]);
    expect(host.warnings).toEqual([]);
    expect(globalThis.fetch).toBe(before);
    const ask = async (to: string): Promise<unknown> =>
      (await fetch(`${to}/v1/chat/completions`, { method: "POST", body: '{"tools":[{}]}' })).text();
    const run = async (context: RunContext): Promise<void> => {
      await Promise.resolve();
      host.begin(context);
      await ask(url);
      await ask(other.url);
      await ask(url);
      host.hooks.get("agent_end")!(undefined as never, context);
      await ask(url);
    };
    try {
      await Promise.all([run({ sessionId: "a", trigger: "user" }), run({ sessionId: "b", trigger: "cron" })]);
    } finally {
      globalThis.fetch = before;
    }
    const told = seen.map(({ headers }) => [
      headers["x-session-id"],
      headers["x-turn-type"],
      headers["x-turn-kind"],
      headers["x-call-index"],
    ]);
    expect(told.sort()).toEqual([
      [undefined, undefined, undefined, undefined],
      [undefined, undefined, undefined, undefined],
      ["a", "main", "user", "1"],
      ["a", "main", "user", "2"],
      ["b", "side", "cron", "1"],
      ["b", "side", "cron", "2"],
    ]);
    const ids = new Set(
      seen.filter(({ headers }) => headers["x-session-id"] === "a").map(({ headers }) => headers["x-run-id"]),
    );
    expect(ids.size).toBe(1);
    expect(other.seen.every(({ headers }) => headers["x-session-id"] === undefined)).toBe(true);
  });
});
