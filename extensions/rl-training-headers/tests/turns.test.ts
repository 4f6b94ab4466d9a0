import { describe, expect, it } from "vitest";

import type { RunContext } from "../src/openclaw.js";
import { headersOf, parseRequestId, SIMPLE_TURN, turnOfCall, turnOfRequest } from "../src/turns.js";

const AGENT = { systemPrompt: "You are an assistant.", tools: [{}] };
const CALL = { requestId: "run-1:model:2", sessionId: "s-1" };
const USER: RunContext = { runId: "run-1", sessionId: "s-1", sessionKey: "agent:main:main", trigger: "user" };

describe("the id of a request", () => {
  it("names run and call", () => {
    expect(parseRequestId("run-1:model:2")).toEqual({ runId: "run-1", callIndex: 2, compacts: false });
    expect(parseRequestId("announce:v1:agent:main:x:model:13")?.runId).toBe("announce:v1:agent:main:x");
  });
  it("tells a compaction", () => {
    expect(parseRequestId("u:compaction:c-7:model:1")).toEqual({ runId: "u", callIndex: 1, compacts: true });
  });
  it("may be absent or of another form", () => {
    expect(parseRequestId(undefined)).toBeUndefined();
    expect(parseRequestId("run-1:model:")).toBeUndefined();
  });
});

describe("the kind of a call", () => {
  it.each(["user", "manual", "overflow"])("is main where %s began the run", (trigger) => {
    expect(turnOfCall(CALL, AGENT, { ...USER, trigger })).toMatchObject({ type: "main", kind: trigger });
  });
  it.each(["heartbeat", "cron", "memory", "something new"])("is side where %s began the run", (trigger) => {
    expect(turnOfCall(CALL, AGENT, { ...USER, trigger })).toMatchObject({ type: "side", kind: trigger });
  });
  it.each(["agent:main:subagent:8c", "agent:main:acp:8c"])("is a sub-agent's in %s", (sessionKey) => {
    expect(turnOfCall(CALL, AGENT, { ...USER, sessionKey })).toMatchObject({ type: "side", kind: "subagent" });
  });
  it("is memory in the hidden session of a flush", () => {
    const flush = { ...USER, trigger: "memory", sessionId: "internal-session-effects-3" };
    expect(turnOfCall(CALL, AGENT, flush)).toMatchObject({ type: "side", kind: "memory" });
  });
  it.each([
    { sessionId: "internal-session-effects-3" },
    { sessionKey: "agent:main:internal-session-effects-3" },
    { inputProvenance: { kind: "inter_session" } },
    { inputProvenance: { kind: "internal_system" } },
  ])("is internal where no person wrote: %j", (sign) => {
    expect(turnOfCall(CALL, AGENT, { ...USER, ...sign })).toMatchObject({ type: "side", kind: "internal" });
  });
  it("is main where a person outside wrote", () => {
    const run = { ...USER, inputProvenance: { kind: "external_user" } };
    expect(turnOfCall(CALL, AGENT, run).type).toBe("main");
  });
  it("is an announcement by the run's name, whatever began it", () => {
    const call = { requestId: "announce:v1:agent:main:subagent:8c:model:1", sessionId: "s-1" };
    expect(turnOfCall(call, AGENT, USER)).toMatchObject({ type: "side", kind: "announce" });
    expect(turnOfCall(call, AGENT, undefined)).toMatchObject({ type: "side", kind: "announce" });
  });
  it("is a compaction within a person's run", () => {
    const call = { requestId: "run-1:compaction:c:model:1" };
    expect(turnOfCall(call, { systemPrompt: "Summarise." }, USER)).toMatchObject({ type: "side", kind: "compaction" });
  });
  it("is the text-only pass where neither system prompt nor tools are left", () => {
    expect(turnOfCall(CALL, {}, USER)).toMatchObject({ type: "side", kind: "finalize" });
    expect(turnOfCall(CALL, { tools: [] }, USER).kind).toBe("finalize");
    expect(turnOfCall(CALL, { systemPrompt: "x" }, USER).kind).toBe("user");
    expect(turnOfCall(CALL, { tools: [{}] }, USER).kind).toBe("user");
  });
  it("is unknown and side where no hook told about the run", () => {
    expect(turnOfCall(CALL, AGENT, undefined)).toMatchObject({ type: "side", kind: "unknown", sessionId: "s-1" });
    expect(turnOfCall(CALL, AGENT, { runId: "run-1" })).toMatchObject({ type: "side", kind: "unknown" });
  });
});

describe("the headers of a call", () => {
  it("name session, run and call", () => {
    expect(headersOf(turnOfCall(CALL, AGENT, USER), true)).toEqual({
      "X-Turn-Type": "main",
      "X-Turn-Kind": "user",
      "X-Session-Id": "s-1",
      "X-Session-Key": "agent:main:main",
      "X-Run-Id": "run-1",
      "X-Call-Index": "2",
    });
  });
  it("take the session from the run where the call does not say", () => {
    expect(headersOf(turnOfCall({ requestId: "run-1:model:1" }, AGENT, USER), true)["X-Session-Id"]).toBe("s-1");
  });
  it("say only the kind where sessions are not tracked", () => {
    expect(headersOf(turnOfCall(CALL, AGENT, USER), false)).toEqual({ "X-Turn-Type": "main", "X-Turn-Kind": "user" });
  });
  it("leave out what is no header: spaces, line breaks, other scripts, endless names", () => {
    for (const sessionKey of ["agent:main:Jörg", "a b", "a\nX-Evil: 1", "x".repeat(201)]) {
      expect(headersOf(turnOfCall(CALL, AGENT, { ...USER, sessionKey }), true)).not.toHaveProperty("X-Session-Key");
    }
  });
  it("of a title name no session", () => {
    expect(headersOf(SIMPLE_TURN, true)).toEqual({ "X-Turn-Type": "side", "X-Turn-Kind": "simple" });
  });
});

describe("a call of an old version", () => {
  it("is the run's where it has tools", () => {
    expect(turnOfRequest({ tools: [{}] }, USER, "r", 3)).toEqual({
      type: "main",
      kind: "user",
      sessionId: "s-1",
      sessionKey: "agent:main:main",
      runId: "r",
      callIndex: 3,
    });
    expect(turnOfRequest({ tools: [{}] }, { ...USER, trigger: "cron" }, "r", 1).kind).toBe("cron");
  });
  it.each([{}, { tools: [] }, undefined, "text"])("is housekeeping where it has none: %j", (body) => {
    expect(turnOfRequest(body, USER, "r", 1)).toMatchObject({ type: "side", kind: "simple" });
  });
});
