/**
 * What is known about a model call -> which session, run and kind of turn it is -> headers.
 *
 * A turn is *main* where a person asked and reads the answer; everything that OpenClaw does by itself is *side*. A call
 * about which nothing is known is side: a lesson less is better than a lesson from housekeeping. Knows nothing about
 * how the headers reach a request.
 */

import type { Headers, Prompt, RunContext } from "./openclaw.js";

export interface Turn {
  readonly type: "main" | "side";
  /** What README.md lists. */
  readonly kind: string;
  readonly sessionId?: string;
  readonly sessionKey?: string;
  readonly runId?: string;
  readonly callIndex?: number;
}

export interface RequestId {
  readonly runId: string;
  readonly callIndex: number;
  readonly compacts: boolean;
}

const MAIN_TRIGGERS: ReadonlySet<string> = new Set(["user", "manual", "overflow"]);
const SUBAGENT = /:(?:subagent|acp):/;
const HIDDEN_SESSION = "internal-session-effects";

/** "<run>:model:<n>", or "<run>:compaction:<id>:model:<n>". */
export function parseRequestId(requestId: string | undefined): RequestId | undefined {
  const found = /^(.+?)(:compaction:.*)?:model:(\d+)$/.exec(requestId ?? "");
  if (found === null) {
    return undefined;
  }
  return { runId: found[1]!, callIndex: Number(found[3]), compacts: found[2] !== undefined };
}

/** The turn of a call that an agent's run makes. */
export function turnOfCall(
  call: { requestId?: string | undefined; sessionId?: string | undefined },
  prompt: Prompt,
  run: RunContext | undefined,
): Turn {
  const id = parseRequestId(call.requestId);
  const isBare = !prompt.systemPrompt && !prompt.tools?.length;
  const kind = id?.compacts ? "compaction" : isBare ? "finalize" : runKind(id?.runId, run);
  return describe(kind, call.sessionId ?? run?.sessionId, run, id?.runId ?? run?.runId, id?.callIndex);
}

/** The turn of a call in a version that hides everything but the run's context and the request's body. */
export function turnOfRequest(body: unknown, run: RunContext, runId: string, callIndex: number): Turn {
  const tools = typeof body === "object" && body !== null && "tools" in body ? body.tools : undefined;
  const kind = Array.isArray(tools) && tools.length > 0 ? runKind(run.runId, run) : "simple";
  return describe(kind, run.sessionId, run, runId, callIndex);
}

/** Titles, diaries, slugs: single calls outside any run. */
export const SIMPLE_TURN: Turn = { type: "side", kind: "simple" };

export function headersOf(turn: Turn, tracksSessions: boolean): Headers {
  const headers: Headers = { "X-Turn-Type": turn.type, "X-Turn-Kind": turn.kind };
  if (tracksSessions) {
    const named = {
      "X-Session-Id": turn.sessionId,
      "X-Session-Key": turn.sessionKey,
      "X-Run-Id": turn.runId,
      "X-Call-Index": turn.callIndex?.toString(),
    };
    for (const [name, value] of Object.entries(named)) {
      if (value !== undefined && isHeaderValue(value)) {
        headers[name] = value;
      }
    }
  }
  return headers;
}

/** Session keys may hold names in any script; the server takes 200 characters of printable ASCII. */
export function isHeaderValue(value: string): boolean {
  return /^[\x21-\x7e]{1,200}$/.test(value);
}

/** Why a run is there. What began it says little where another agent or OpenClaw itself wrote the message. */
function runKind(runId: string | undefined, run: RunContext | undefined): string {
  if (runId?.startsWith("announce:")) {
    return "announce";
  }
  if (run === undefined || run.trigger === undefined) {
    return "unknown";
  }
  if (!MAIN_TRIGGERS.has(run.trigger)) {
    return run.trigger;
  }
  if (SUBAGENT.test(run.sessionKey ?? "")) {
    return "subagent";
  }
  const hidden = run.sessionKey?.includes(HIDDEN_SESSION) || run.sessionId?.includes(HIDDEN_SESSION);
  const origin = run.inputProvenance?.kind;
  return hidden || (origin !== undefined && origin !== "external_user") ? "internal" : run.trigger;
}

function describe(
  kind: string,
  sessionId: string | undefined,
  run: RunContext | undefined,
  runId: string | undefined,
  callIndex: number | undefined,
): Turn {
  return {
    type: MAIN_TRIGGERS.has(kind) ? "main" : "side",
    kind,
    ...(sessionId === undefined ? {} : { sessionId }),
    ...(run?.sessionKey === undefined ? {} : { sessionKey: run.sessionKey }),
    ...(runId === undefined ? {} : { runId }),
    ...(callIndex === undefined ? {} : { callIndex }),
  };
}
