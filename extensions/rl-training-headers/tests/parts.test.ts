import { describe, expect, it } from "vitest";

import { isUnder, patchFetch } from "../src/fetch-patch.js";
import { Runs } from "../src/runs.js";
import { endNotices } from "../src/session-end.js";
import { readSettings } from "../src/settings.js";

describe("settings", () => {
  it("have defaults", () => {
    expect(readSettings()).toEqual({ providers: ["rl"], tracksSessions: true, remarks: [] });
  });
  it("take the keys of the published example", () => {
    const raw = { rollout_endpoint: "http://localhost:8000/rollout", training_mode: "async", session_tracking: true };
    expect(readSettings(raw)).toEqual({
      providers: ["rl"],
      tracksSessions: true,
      rolloutEndpoint: "http://localhost:8000/rollout",
      remarks: [],
    });
  });
  it("say what they do not follow", () => {
    const { remarks, ...rest } = readSettings({
      providers: [],
      rollout_endpoint: "nowhere",
      training_mode: "sync",
      session_tracking: false,
    });
    expect(rest).toEqual({ providers: ["rl"], tracksSessions: false });
    expect(remarks.map((line) => line.split(" ")[0])).toEqual(["providers", "training_mode", "rollout_endpoint"]);
  });
});

describe("the end of a session", () => {
  const event = { sessionId: "s/1", reason: "new", nextSessionId: "s-2" };
  const body = { session_id: "s/1", reason: "new", next_session_id: "s-2" };

  it("goes to each of our providers, once for each address", () => {
    const settings = readSettings({ providers: ["a", "b", "c", "gone"] });
    const providers = {
      a: { baseUrl: "http://h:1/v1/" },
      b: { baseUrl: "http://h:1" },
      c: { baseUrl: "http://h:2/v1" },
      other: { baseUrl: "http://elsewhere/v1" },
    };
    expect(endNotices(event, settings, providers)).toEqual([
      { url: "http://h:1/v1/sessions/s%2F1/done", provider: "a", body },
      { url: "http://h:2/v1/sessions/s%2F1/done", provider: "c", body },
    ]);
  });
  it("goes to the rollout endpoint instead, with the key of the provider that has an address", () => {
    const settings = readSettings({ providers: ["gone", "b"], rollout_endpoint: "http://h/rollout" });
    const providers = { b: { baseUrl: "http://h:1" } };
    expect(endNotices(event, settings, providers)).toEqual([{ url: "http://h/rollout", provider: "b", body }]);
  });
  it.each(["new", "reset", "idle", "daily", "deleted", undefined])("is told for %s", (reason) => {
    const providers = { rl: { baseUrl: "http://h/v1" } };
    const ended = { sessionId: "s", ...(reason === undefined ? {} : { reason }) };
    expect(endNotices(ended, readSettings(), providers)[0]?.body).toEqual({
      session_id: "s",
      reason: reason ?? "unknown",
      next_session_id: null,
    });
  });
  it.each(["compaction", "shutdown", "restart", "unknown"])("is none for %s", (reason) => {
    expect(endNotices({ ...event, reason }, readSettings(), { rl: { baseUrl: "http://h/v1" } })).toEqual([]);
  });
  it("is not told where sessions are not tracked", () => {
    expect(endNotices(event, readSettings({ session_tracking: false }), { rl: { baseUrl: "http://h/v1" } })).toEqual(
      [],
    );
  });
});

describe("the runs under way", () => {
  it("are found by id, the newest word counts, and the oldest are forgotten", () => {
    const runs = new Runs();
    runs.remember({ trigger: "user" });
    runs.remember({ runId: "first", trigger: "user" });
    runs.remember({ runId: "second", trigger: "user" });
    runs.remember({ runId: "first", trigger: "cron" });
    for (let i = 0; i < 1999; i += 1) {
      runs.remember({ runId: `later-${i}`, trigger: "user" });
    }
    expect(runs.find("first")?.trigger).toBe("cron");
    expect(runs.find("second")).toBeUndefined();
    expect(runs.find(undefined)).toBeUndefined();
  });
});

describe("the patched fetch", () => {
  type Seen = { url: string; headers: Record<string, string>; body: string };

  function host(): { fetch: typeof fetch; seen: Seen[] } {
    const seen: Seen[] = [];
    const take: typeof fetch = async (input, init) => {
      const request = new Request(input, init);
      seen.push({ url: request.url, headers: Object.fromEntries(request.headers), body: await request.text() });
      return new Response();
    };
    return { fetch: take, seen };
  }
  const post = { method: "POST", body: '{"tools":[1]}', headers: { "x-turn-type": "side" } };

  it("adds to POSTs to our address what is not there yet", async () => {
    const server = host();
    patchFetch(server, ["http://ours/v1"], (body) => ({ "X-Turn-Type": "main", "X-Body": JSON.stringify(body) }));
    await server.fetch("http://ours/v1/chat/completions", post);
    await server.fetch(new Request("http://ours/v1/x", { ...post, headers: {} }));
    await server.fetch(new URL("http://ours/v1/y"), { ...post, body: "no json" });
    expect(server.seen[0]?.headers).toMatchObject({ "x-turn-type": "side", "x-body": '{"tools":[1]}' });
    expect(server.seen[1]).toMatchObject({
      body: '{"tools":[1]}',
      headers: { "x-turn-type": "main", "x-body": '{"tools":[1]}' },
    });
    expect(server.seen[2]?.headers["x-turn-type"]).toBe("side");
  });
  it("leaves everything else alone", async () => {
    const server = host();
    patchFetch(server, ["http://ours/v1"], () => ({ "X-Session-Id": "secret" }));
    await server.fetch("http://ours/v12/chat/completions", post);
    await server.fetch("http://elsewhere/?u=http://ours/v1/", post);
    await server.fetch("http://ours/v1/models");
    expect(server.seen.map((request) => request.headers["x-session-id"])).toEqual([undefined, undefined, undefined]);
  });
  it("sends what it cannot describe as it is", async () => {
    const server = host();
    patchFetch(server, ["http://ours"], () => undefined);
    await server.fetch("http://ours/v1/x", post);
    expect(server.seen[0]?.headers["x-turn-type"]).toBe("side");
  });
  it("replaces the patch of an earlier registration", async () => {
    const server = host();
    patchFetch(server, ["http://ours"], () => ({ "X-Old": "1" }));
    patchFetch(server, ["http://ours"], () => ({ "X-New": "1" }));
    await server.fetch("http://ours/v1/x", post);
    expect(server.seen[0]?.headers).toHaveProperty("x-new");
    expect(server.seen[0]?.headers).not.toHaveProperty("x-old");
  });
  it("knows what lies under an address", () => {
    expect(isUnder(["http://a/v1/"], "http://a/v1?x=1")).toBe(true);
    expect(isUnder([], "http://a/v1")).toBe(false);
  });
});
