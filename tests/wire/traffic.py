"""What agents really send, request by request, in our own words: headers, keys, roles and order are theirs.

Each case is a list of `Step`s: one request, and where it has to land. `{{…}}` in the last words of a request is what
the scripted engine answers; later requests show that answer the way the client replays it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A request and its place: the session (an alias, or its id), the number of its turn, its parent, its kind.

    `fails`: the client is cut off while it reads.
    """

    messages: list[Json]
    session: str
    turn: int = 0
    parent: int | None = None
    kind: str = "main"
    tools: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Json = field(default_factory=dict)
    fails: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    """`next_states`: the texts that followed a turn (`SESSION.INDEX`). No other turn has any."""

    steps: list[Step]
    next_states: dict[str, list[str]] = field(default_factory=dict)


CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build


# The parts that messages are made of.

_NAMES = UUID("5a0f5c1e-0000-4000-8000-000000000000")


def uid(name: str) -> str:
    """An id as programs make them, the same in each run."""
    return str(uuid5(_NAMES, name))


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def parts(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def bot(text: str | None, *calls: Json, **more: Any) -> Json:
    message: Json = {"role": "assistant", "content": text, **more}
    return {**message, "tool_calls": list(calls)} if calls else message


def system(text: str) -> Json:
    return {"role": "system", "content": text}


def call(command: str, call_id: str) -> Json:
    """A call as it is replayed: compact arguments, an id without the characters that were not letters or digits."""
    arguments = json.dumps({"command": command}, separators=(",", ":"), ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": "exec", "arguments": arguments}}


def result(text: str, call_id: str) -> Json:
    return {"role": "tool", "content": text, "tool_call_id": call_id}


def stamped(text: str, minute: int = 0) -> str:
    return f"[Mon 2030-01-07 09:{minute:02} UTC] {text}"


def runtime(text: str, session: str, session_id: str | None = None) -> str:
    named = f"session={session}" + (f" | sessionId={session_id}" if session_id else "")
    return f"{text}\n\nRuntime: agent=main | {named} | host=box | os=Linux 6 (x64) | model=rl/m | shell=bash"


def timed(text: str) -> str:
    return f"{text}\nCurrent time: Monday, January 7th, 2030 - 9:30 AM (UTC)\nReference UTC: 2030-01-07 09:30 UTC"


AGENT = system("<!-- openclaw:attempt:STABLE -->\nYou help one person, inside OpenClaw.\n## Tools\nUse them.\n" * 3)
WAKE_AGENT = system("<!-- openclaw:attempt:STABLE -->\nYou help one person, inside OpenClaw. Nobody is there.\n" * 3)
CARRIER = parts("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nRunning jobs:\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>")
STOCK = {"user-agent": "OpenAI/JS 7.15.0", "traceparent": "00-4184d146007839bcccb07a3ab47e0085-ee01cf443b465b42-01"}
HEARTBEAT = timed("Look into your heartbeat notes and do what is due. If nothing is, reply NO_REPLY. {{NO_REPLY}}")
NUDGE = "The previous attempt gave no user-visible answer. Go on from here and produce a visible answer now."


def affinity(session_id: str, epoch: int | None) -> dict[str, str]:
    """OpenClaw's headers with `sendSessionAffinityHeaders`."""
    name = session_id if epoch is None else f"{session_id}:{epoch}"
    return {**STOCK, "x-session-affinity": name, "session_id": name, "x-client-request-id": name}


@case
def openclaw_stock() -> Case:
    """No header names the session: the first user message does. A tool loop, ids and arguments written anew."""
    key = uid("stock")
    first = user(runtime(stamped("good morning {{Good morning!}}"), "agent:main:main", key))
    run = [first, bot("Good morning!"), user(stamped("list the files {{call ls -a}}", 1))]
    loop = [*run, bot(None, call("ls -a", "callx1")), result("a.txt {{There is one file.}}", "callx1")]
    last = [*loop, bot("There is one file."), user(stamped("thanks {{You are welcome.}}", 3))]
    step: Json = {"session": key, "tools": 12, "headers": STOCK}
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], **step),
            Step(messages=[AGENT, *run, CARRIER], turn=1, parent=0, **step),
            Step(messages=[AGENT, *loop, CARRIER], turn=2, parent=1, **step),
            Step(messages=[AGENT, *last, CARRIER], turn=3, parent=2, **step),
        ],
        next_states={
            f"{key}.0": [run[2]["content"]],
            f"{key}.1": [loop[4]["content"]],
            f"{key}.2": [last[6]["content"]],
        },
    )


@case
def openclaw_epochs() -> Case:
    """`/new`, compaction and `/reset` keep the session and count the epoch; the summary call has no epoch."""
    key = uid("epochs")
    hello = user(runtime(stamped("hello {{Hello.}}"), "agent:main:e", key))
    anew = user(runtime(stamped("something new {{New it is.}}", 1), "agent:main:e", key))
    more = [anew, bot("New it is."), user(stamped("more of it {{More.}}", 2))]
    short = [*more, bot("More."), user(stamped("short {{Short.}}", 3))]
    summary = "The history was compacted into this summary:\n\n<summary>\nnothing yet\n</summary>"
    after = [user(runtime(summary, "agent:main:e", key)), *short[2:], bot("Short."), user(stamped("go on {{On.}}", 4))]
    reset = user(runtime(stamped("and again {{Again.}}", 5), "agent:main:e", key))
    compaction = [
        system("You are a context summarization assistant. You write what was said in a fixed form."),
        user(
            "<conversation>\n[User]: something new\n[Assistant]: New it is.\n</conversation>\n\nWrite it. {{Nothing.}}"
        ),
    ]

    def step(epoch: int | None, messages: list[Json], turn: int, parent: int | None = None, **more: Any) -> Step:
        headers = affinity(key, epoch)
        body = {"prompt_cache_key": headers["session_id"], **more.pop("body", {})}
        return Step(messages=messages, session=key, turn=turn, parent=parent, headers=headers, body=body, **more)

    return Case(
        steps=[
            step(0, [AGENT, hello, CARRIER], 0, tools=12),
            step(1, [AGENT, anew, CARRIER], 1, tools=12),
            step(1, [AGENT, *more, CARRIER], 2, 1, tools=12),
            step(1, [AGENT, *short, CARRIER], 3, 2, tools=12),
            step(None, compaction, 4, kind="side", body={"max_tokens": 200}),
            step(2, [AGENT, *after, CARRIER], 5, 3, tools=12),
            step(3, [AGENT, reset, CARRIER], 6, tools=12),
        ],
        next_states={
            f"{key}.1": [more[2]["content"]],
            f"{key}.2": [short[4]["content"]],
            f"{key}.3": [after[-1]["content"]],
        },
    )


@case
def openclaw_unknown_upkeep() -> Case:
    """A call without tools that continues nothing, in a session whose turns have tools, is nobody's question."""
    key = uid("upkeep")
    first = user(runtime(stamped("hello {{Hello.}}"), "agent:main:u", key))
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], session=key, tools=12, headers=affinity(key, 0)),
            Step(
                messages=[system("Condense."), user("U: hello\nA: Hello. {{They met.}}")],
                session=key,
                turn=1,
                kind="side",
                headers=affinity(key, None),
            ),
        ]
    )


def _heartbeat(name: str, answer: str) -> tuple[str, list[Step], Json]:
    """A main turn, a heartbeat in the same session, and the main turn after it, which shows the heartbeat as a note."""
    key = uid(name)
    first = user(runtime(stamped("plan my day {{A plan.}}"), "agent:main:main", key))
    beat = user(HEARTBEAT.replace("{{NO_REPLY}}", f"{{{{{answer}}}}}"))
    note = user(stamped("[OpenClaw heartbeat poll]", 30))
    then = user(stamped("make it shorter {{Shorter.}}", 40))
    step: Json = {"session": key, "headers": STOCK}
    steps = [
        Step(messages=[AGENT, first, CARRIER], tools=12, **step),
        Step(
            messages=[WAKE_AGENT, first, bot("A plan."), beat, CARRIER], turn=1, parent=0, kind="side", tools=11, **step
        ),
        Step(
            messages=[AGENT, first, bot("A plan."), note, bot(answer), then, CARRIER],
            turn=2,
            parent=1,
            tools=12,
            **step,
        ),
    ]
    return key, steps, then


@case
def openclaw_silent_heartbeat() -> Case:
    """Nobody saw the heartbeat's answer: what the person says next is about the answer before it."""
    key, steps, then = _heartbeat("silent-heartbeat", "NO_REPLY")
    return Case(steps=steps, next_states={f"{key}.0": [then["content"]]})


@case
def openclaw_visible_heartbeat() -> Case:
    """The person saw both answers: his words are about neither for sure."""
    _, steps, _ = _heartbeat("visible-heartbeat", "Your train is late.")
    return Case(steps=steps)


@case
def openclaw_heartbeat_first() -> Case:
    """A session that begins with a heartbeat, shown later as a note with the Runtime line behind it."""
    key = uid("beat-first")
    beat = user(runtime(HEARTBEAT, "agent:main:main", key))
    note = user(runtime(stamped("[OpenClaw heartbeat poll]"), "agent:main:main", key))
    then = user(stamped("hello {{Hello.}}", 40))
    step: Json = {"session": key, "headers": STOCK}
    return Case(
        steps=[
            Step(messages=[WAKE_AGENT, beat, CARRIER], kind="side", tools=11, **step),
            Step(messages=[AGENT, note, bot("NO_REPLY"), then, CARRIER], turn=1, parent=0, tools=12, **step),
        ]
    )


@case
def openclaw_cron() -> Case:
    """A scheduled job has a session of its own, without a session id; with affinity headers its name is a hash."""
    job = user(runtime(timed("[cron:77-a sweep] sweep the floor {{Swept.}}"), "agent:main:cron:77-a"))
    named = affinity("openclaw-cron-2a129d3e9004", None)
    return Case(
        steps=[
            Step(messages=[AGENT, job, CARRIER], session="agent:main:cron:77-a", kind="side", tools=11, headers=STOCK),
            Step(
                messages=[AGENT, job, CARRIER],
                session="openclaw-cron-2a129d3e9004",
                kind="side",
                tools=11,
                headers=named,
            ),
        ]
    )


@case
def openclaw_skill_review() -> Case:
    """The weekly look at skills is a scheduled job too."""
    job = user(runtime(timed("[cron:skills review] look at the skills {{Fine.}}"), "agent:main:cron:skills"))
    return Case(
        steps=[
            Step(messages=[AGENT, job, CARRIER], session="agent:main:cron:skills", kind="side", tools=10, headers=STOCK)
        ]
    )


@case
def openclaw_memory_flush() -> Case:
    """The flush carries the parent's affinity, but the Runtime line of a session of its own, or only that line."""
    key, own = uid("flush"), "internal-session-effects-0a1b"
    asked = stamped("remember this {{I will.}}")
    first = user(runtime(asked, "agent:main:f", key))
    again = user(runtime(asked, "agent:main:internal-session-effects:0a1b", own))
    flush = user(
        timed("Memory flush. Write down what lasts, in one file. If nothing does, reply NO_REPLY. {{NO_REPLY}}")
    )
    then = user(stamped("what was it? {{This.}}", 2))
    with_headers: Json = {"headers": affinity(key, 0)}
    without: Json = {"headers": STOCK}
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], session=key, tools=12, **with_headers),
            Step(
                messages=[AGENT, again, bot("I will."), flush],
                session=key,
                turn=1,
                parent=0,
                kind="side",
                tools=2,
                **with_headers,
            ),
            Step(messages=[AGENT, again, bot("I will."), flush], session=own, kind="side", tools=2, **without),
            Step(
                messages=[AGENT, first, bot("I will."), then, CARRIER],
                session=key,
                turn=2,
                parent=0,
                tools=12,
                **with_headers,
            ),
        ],
        next_states={f"{key}.0": [then["content"]]},
    )


@case
def openclaw_title() -> Case:
    """The title of a dashboard session comes first and names no session."""
    key = uid("title")
    words = "plan a trip"
    first = user(runtime(stamped(words + " {{Gladly.}}"), "agent:main:dashboard:1", key) + " | channel=webchat")
    title = [
        system("Generate a short session title from the first message. Return only that."),
        user(words + "{{Trip}}"),
    ]
    return Case(
        steps=[
            Step(messages=title, session="title", kind="side", headers={"user-agent": "OpenAI/JS 7.15.0"}),
            Step(messages=[AGENT, first, CARRIER], session=key, tools=11, headers=STOCK),
        ]
    )


@case
def openclaw_diary_and_slug() -> Case:
    """Nightly diary and file names: no tools, nobody's words."""
    slug = uid("slug")
    named = user(
        runtime(
            "Make a filename slug of this. {{trip}}",
            f"agent:main:helper:slug-generator-{slug}",
            f"slug-generator-{slug}",
        )
    )
    return Case(
        steps=[
            Step(
                messages=[
                    system("You are keeping a dream diary. Write what the day left."),
                    user("notes {{I dreamt.}}"),
                ],
                session="diary",
                kind="side",
            ),
            Step(messages=[AGENT, named, CARRIER], session=f"slug-generator-{slug}", kind="side", headers=STOCK),
        ]
    )


@case
def openclaw_subagent() -> Case:
    """A sub-agent has a session of its own; its report reaches the parent in the carrier alone, and the two answers
    of the parent become one message."""
    key, child = uid("parent"), uid("child")
    first = user(runtime(stamped("find it {{I sent somebody.}}"), "agent:main:p", key))
    task = user(runtime("Find it. {{Found in the shed.}}", f"agent:main:subagent:{child}", child))
    event = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\n[Internal task completion event]\n{{It is in the shed.}}"
    merged = bot("I sent somebody.\nIt is in the shed.")
    then = user(stamped("whose shed? {{Yours.}}", 5))
    last = user(stamped("oh {{Yes.}}", 6))
    step: Json = {"session": key, "headers": STOCK}
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], tools=12, **step),
            Step(messages=[AGENT, task, CARRIER], session=child, kind="side", tools=11, headers=STOCK),
            Step(
                messages=[AGENT, first, bot("I sent somebody."), parts(event)],
                turn=1,
                parent=0,
                kind="side",
                tools=11,
                **step,
            ),
            Step(messages=[AGENT, first, merged, then, CARRIER], turn=2, parent=1, tools=12, **step),
            Step(
                messages=[AGENT, first, merged, then, bot("Yours."), last, CARRIER], turn=3, parent=2, tools=12, **step
            ),
        ],
        next_states={f"{key}.2": [last["content"]]},
    )


@case
def openclaw_recovery_pass() -> Case:
    """An unknown tool, then silence: a pass without system prompt, tools, stamps and Runtime line gives the answer that
    stays; the call, its error and the silence vanish."""
    key = uid("recovery")
    plain = ["hello {{Hello.}}", "use the thing {{call thing}}"]
    first = user(runtime(stamped(plain[0]), "agent:main:r", key))
    run = [first, bot("Hello."), user(stamped(plain[1], 1))]
    error = result("Tool thing not found {{}}", "callx2")
    nudge = user(
        "The previous assistant turn ran its tools but gave no user-visible answer. Give it now. {{No such tool.}}"
    )
    then = user(stamped("pity {{Yes.}}", 3))
    step: Json = {"session": key, "headers": affinity(key, 0)}
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], tools=12, **step),
            Step(messages=[AGENT, *run, CARRIER], turn=1, parent=0, tools=12, **step),
            Step(
                messages=[AGENT, *run, bot(None, call("thing", "callx2")), error, CARRIER],
                turn=2,
                parent=1,
                tools=12,
                **step,
            ),
            Step(
                messages=[user(plain[0]), bot("Hello."), user(plain[1]), nudge],
                turn=3,
                parent=0,
                kind="side",
                **step,
            ),
            Step(messages=[AGENT, *run, bot("No such tool."), then, CARRIER], turn=4, parent=3, tools=12, **step),
        ],
        next_states={f"{key}.0": [run[2]["content"]], f"{key}.1": [error["content"]]},
    )


@case
def openclaw_empty_reply() -> Case:
    """After an empty reply the same request comes with a nudge; both the empty reply and the nudge vanish."""
    key = uid("empty")
    first = user(runtime(stamped("hello {{Hello.}}"), "agent:main:n", key))
    run = [first, bot("Hello."), user(stamped("say something {{}}", 1))]
    then = user(stamped("better {{Thanks.}}", 2))
    step: Json = {"session": key, "tools": 12, "headers": STOCK}
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], **step),
            Step(messages=[AGENT, *run, CARRIER], turn=1, parent=0, **step),
            Step(
                messages=[AGENT, *run, user(stamped(NUDGE + " {{Something.}}", 1)), CARRIER], turn=2, parent=0, **step
            ),
            Step(messages=[AGENT, *run, bot("Something."), then, CARRIER], turn=3, parent=2, **step),
        ],
        next_states={f"{key}.0": [run[2]["content"]], f"{key}.2": [then["content"]]},
    )


@case
def openclaw_resampled_call() -> Case:
    """A malformed call is asked for again with the identical request: each sample is a sibling, one goes on."""
    key = uid("resampled")
    first = user(runtime(stamped("hello {{Hello, again and again.}}"), "agent:main:m", key))
    then = user(stamped("fine {{Good.}}", 1))
    step: Json = {"session": key, "tools": 12, "headers": STOCK}
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], **step),
            Step(messages=[AGENT, first, CARRIER], turn=1, **step),
            Step(messages=[AGENT, first, CARRIER], turn=2, **step),
            Step(messages=[AGENT, first, bot("Hello, again and again."), then, CARRIER], turn=3, parent=2, **step),
        ],
        next_states={f"{key}.2": [then["content"]]},
    )


@case
def openclaw_failed_request() -> Case:
    """After an error the question comes back wrapped, and stands in later history as it was asked first."""
    key = uid("failed")
    first = user(runtime(stamped("hello {{Hello.}}"), "agent:main:x", key))
    asked = "tell me {{" + "all of it, at length, " * 40 + "}}"
    run = [first, bot("Hello."), user(stamped(asked, 1))]
    wrapped = user(
        stamped(f"[A message from before, kept as context.]\n{asked}\n\nGo on with your work. {{{{In short.}}}}", 1)
    )
    then = user(stamped("good {{Thanks.}}", 2))
    step: Json = {"session": key, "tools": 12, "headers": STOCK}
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], **step),
            Step(messages=[AGENT, *run, CARRIER], turn=1, parent=0, fails=True, **step),
            Step(messages=[AGENT, *run[:2], wrapped, CARRIER], turn=1, parent=0, **step),
            Step(messages=[AGENT, *run, bot("In short."), then, CARRIER], turn=2, parent=1, **step),
        ],
        next_states={f"{key}.0": [run[2]["content"]], f"{key}.1": [then["content"]]},
    )


@case
def openclaw_context_cut() -> Case:
    """Too long a history is cut to its newest calls; a call whose result is lost gets one that no tool gave."""
    key = uid("cut")
    long = "find . -name 'a rather long pattern that stands in one call only'"
    first = user(runtime(stamped("look everywhere {{call " + long + "}}"), "agent:main:c", key))
    found = result("nothing {{call ls}}", "callx3")
    start = user(runtime("(session bootstrap)", "agent:main:c", key))
    lost = result("[openclaw] missing tool result; a made-up one was put here", "callx4")
    step: Json = {"session": key, "tools": 12, "headers": STOCK}
    looked = bot(None, call(long, "callx3"))
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], **step),
            Step(messages=[AGENT, first, looked, found, CARRIER], turn=1, parent=0, **step),
            Step(
                messages=[
                    AGENT,
                    start,
                    looked,
                    found,
                    bot(None, call("ls", "callx4")),
                    lost,
                    user("so? {{So.}}"),
                    CARRIER,
                ],
                turn=2,
                parent=1,
                **step,
            ),
        ],
        next_states={f"{key}.0": [found["content"]], f"{key}.1": ["so? {{So.}}"]},
    )


@case
def openclaw_cut_to_one_call() -> Case:
    """Nothing above the newest call is left: the call itself is enough to know it again."""
    key = uid("cut-one")
    long = "grep -r 'another long pattern that is asked for once' ."
    first = user(runtime(stamped("search {{call " + long + "}}"), "agent:main:c1", key))
    start = user(runtime("(session bootstrap)", "agent:main:c1", key))
    found = result("one line {{Found.}}", "callx5")
    step: Json = {"session": key, "tools": 12, "headers": STOCK}
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], **step),
            Step(messages=[AGENT, start, bot(None, call(long, "callx5")), found, CARRIER], turn=1, parent=0, **step),
        ],
        next_states={f"{key}.0": [found["content"]]},
    )


@case
def openclaw_plugin() -> Case:
    """With the plugin the client says what it does, and the bare id wins nothing over the counted one: they agree."""
    key = uid("plugin")
    first = user(runtime(stamped("hello {{Hello.}}"), "agent:main:g", key))
    then = user(stamped("heartbeat NO_REPLY, what is that? {{A token.}}", 1))
    told = {"x-session-id": key, "x-session-key": "agent:main:g", "x-run-id": uid("run"), "x-call-index": "1"}
    main = {**affinity(key, 0), **told, "x-turn-type": "main", "x-turn-kind": "user"}
    side = {**STOCK, **told, "x-turn-type": "side", "x-turn-kind": "unknown"}
    return Case(
        steps=[
            Step(messages=[AGENT, first, CARRIER], session=key, tools=12, headers=main),
            Step(
                messages=[AGENT, first, bot("Hello."), then, CARRIER],
                session=key,
                turn=1,
                parent=0,
                tools=12,
                kind="side",
                headers=side,
            ),
            Step(messages=[AGENT, user("x {{y}}"), CARRIER], session=key, turn=2, tools=12, headers=main),
        ]
    )


@case
def openclaw_of_march() -> Case:
    """2026.3: no session anywhere, parts, no carrier, the Runtime line in the system prompt; heartbeats by a file."""
    prompt = system(
        "You are a personal assistant running inside OpenClaw.\nRuntime: agent=main | host=box | model=rl/m"
    )
    first, then = parts("hello from march {{Hello, March.}}"), parts("and now? {{Now.}}")
    beat = parts("Read HEARTBEAT.md if it exists. If nothing needs you, reply HEARTBEAT_OK. {{HEARTBEAT_OK}}")
    history = [prompt, first, bot("Hello, March.")]
    step: Json = {"session": "march", "tools": 24, "headers": {"user-agent": "OpenAI/JS 6.10.0"}}
    return Case(
        steps=[
            Step(messages=history[:2], **step),
            Step(messages=[*history, beat], turn=1, parent=0, kind="side", **step),
            Step(messages=[*history, beat, bot("HEARTBEAT_OK"), then], turn=2, parent=1, **step),
        ],
        next_states={"march.0": ["and now? {{Now.}}"]},
    )


@case
def openclaw_of_march_by_itself() -> Case:
    """2026.3, what nobody asked for: a due reminder and a heartbeat of the owner's own in the session, a sub-agent and
    a file name in sessions of their own. The greeting after `/new` has the time of its run too, and is for a person."""
    prompt = system(
        "You are a personal assistant running inside OpenClaw.\nRuntime: agent=main | host=box | model=rl/m"
    )
    now = "\nCurrent time: Monday, January 7th, 2030 - 9:30 AM (UTC) / 2030-01-07 09:30 UTC"
    first, then = parts(stamped("march by itself {{Hello to you, early in March.}}")), parts(stamped("shorter {{Hi.}}"))
    history = [prompt, first, bot("Hello to you, early in March.")]
    due = parts("A scheduled reminder was triggered: drink water. Pass it on. {{Drink!}}" + now)
    beat = parts("See whether there is mail; if there is none reply HEARTBEAT_OK. {{HEARTBEAT_OK}}" + now)
    child = parts(stamped("[Subagent Context] You work for another agent.\n\n[Subagent Task]: find it {{Found.}}"))
    slug = parts("Of this conversation make a filename slug, one or two words.\n\nuser: hi {{hi-there}}")
    greeting = parts("A new session was begun with /new or /reset. Say hello. {{Good morning.}}" + now)
    event = parts("System (untrusted): [2030-01-07 09:31:00 UTC] A node came {{NO_REPLY}}")
    step: Json = {"tools": 24, "headers": {"user-agent": "OpenAI/JS 6.26.0"}}
    return Case(
        steps=[
            Step(messages=history[:2], session="by-itself", **step),
            Step(messages=[*history, due], session="by-itself", turn=1, parent=0, kind="side", **step),
            Step(messages=[*history, beat], session="by-itself", turn=2, parent=0, kind="side", **step),
            Step(messages=[*history, event], session="by-itself", turn=3, parent=0, kind="side", **step),
            Step(messages=[prompt, child], session="march-child", kind="side", **step),
            Step(messages=[prompt, slug], session="march-slug", kind="side", **step),
            Step(messages=[prompt, greeting], session="march-new", **step),
            Step(messages=[*history, then], session="by-itself", turn=4, parent=0, **step),
        ],
        next_states={"by-itself.0": [then["content"][0]["text"]]},
    )


@case
def opencode_queued() -> Case:
    """What a person said while the agent worked comes in a reminder, and stands in later history by itself."""
    key = "ses_5f0c" + uid("queued")[:8]
    agent, first = system("You are a coding agent."), user("list them {{call ls -l}}")
    loop = [agent, first, bot("", call("ls -l", "call_q_1")), result("a.txt", "call_q_1")]
    words = "no, find them {{call find}}"
    wrapped = user(
        f"<system-reminder>\nThe user sent this message:\n{words}\n\nPlease address this message.\n</system-reminder>"
    )
    found = [*loop, user(words), bot("", call("find", "call_q_2")), result("b.txt {{There.}}", "call_q_2")]
    step: Json = {"session": key, "tools": 10, "headers": {"x-session-id": key, "x-session-affinity": key}}
    return Case(
        steps=[
            Step(messages=[agent, first], **step),
            Step(messages=[*loop, wrapped], turn=1, parent=0, **step),
            Step(messages=found, turn=2, parent=1, **step),
        ],
        next_states={f"{key}.0": ["a.txt", wrapped["content"]], f"{key}.1": [found[-1]["content"]]},
    )


@case
def opencode() -> Case:
    """The title has the session's id and arrives before the first main call."""
    key = "ses_5f0c" + uid("opencode")[:8]
    named = {"x-session-id": key, "x-session-affinity": key, "user-agent": "opencode/1.18.33 ai-sdk/provider-utils"}
    title = [system("You are a title generator. Output one line."), user("Generate a title:\n"), user("fix it {{Fix}}")]
    first, then = user("fix it {{call make}}"), result("ok {{Fixed, as far as I can see.}}", "call_a_1")
    child = {**named, "x-session-id": key + "c", "x-session-affinity": key + "c", "x-parent-session-id": key}
    agent = system("You are a coding agent.")
    return Case(
        steps=[
            Step(messages=title, session=key, kind="side", headers=named),
            Step(messages=[agent, first], session=key, turn=1, tools=10, headers=named),
            Step(
                messages=[agent, first, bot("", call("make", "call_a_1")), then],
                session=key,
                turn=2,
                parent=1,
                tools=10,
                headers=named,
            ),
            Step(messages=[agent, user("look {{Looked.}}")], session=key + "c", kind="side", tools=5, headers=child),
        ],
        next_states={f"{key}.1": [then["content"]]},
    )


@case
def aider() -> Case:
    """No id, no tools. Rules stand behind the newest question only, files move behind the history, a newline is cut;
    what the client says for itself, and answers itself, is no reaction. Commit messages are nobody's."""
    rules = "\n\n# Rules\n\nEvery block has this form."
    files = [user("I have *added these files*.\n\na.py\nprint(1)\n"), bot("Ok, I will change those files.")]
    base = [system("Act as a developer." + rules), user("I switched to a new code base."), bot("Ok.")]
    first, then = "change it to two {{a.py\nprint(2)\n\n}}", "now say bye {{Bye.}}"
    commit = [system("You generate concise, one-line Git commit messages from diffs."), user("diff {{Two.}}")]
    done = [user("I committed that as 1a2b3c4."), bot("Ok.")]
    headers = {"User-Agent": "OpenAI/Python 2.20.0"}
    return Case(
        steps=[
            Step(messages=[*base, *files, user(first + rules)], session="aider", headers=headers),
            Step(messages=commit, session="aider-commit", kind="side", headers=headers),
            Step(
                messages=[*base, user(first), bot("a.py\nprint(2)"), *done, *files, user(then + rules)],
                session="aider",
                turn=1,
                parent=0,
                headers=headers,
            ),
        ],
        next_states={"aider.0": [then + rules]},
    )


@case
def codex() -> Case:
    """The kind of a request is in a header of JSON; a header that cannot be read says nothing."""
    key = uid("codex")
    told = {"session_id": key, "turn_id": uid("turn"), "thread_source": "user"}

    def headers(**metadata: str) -> dict[str, str]:
        text = json.dumps({**told, **metadata})
        return {"session-id": key, "thread-id": key, "x-client-request-id": key, "x-codex-turn-metadata": text}

    broken = {"session-id": key, "x-codex-turn-metadata": '{"request_kind": "comp'}
    base = [system("You are a coding agent."), user("<environment_context>\n<cwd>/w</cwd>\n</environment_context>")]
    first, then = user("hello codex {{Hello, you.}}"), user("thanks {{Sure.}}")
    history = [*base, first, bot("Hello, you.")]
    step: Json = {"session": key, "tools": 9}
    return Case(
        steps=[
            Step(messages=[*base, first], headers=headers(request_kind="turn"), **step),
            Step(
                messages=[*history, user("make it short {{Short.}}")],
                turn=1,
                parent=0,
                kind="side",
                headers=headers(request_kind="compaction"),
                **step,
            ),
            Step(messages=[*history, then], turn=2, parent=0, headers=broken, **step),
            Step(
                messages=[*base, user("look {{Looked.}}")],
                turn=3,
                kind="side",
                headers=headers(request_kind="turn", thread_source="subagent"),
                **step,
            ),
        ],
        next_states={f"{key}.0": [then["content"]]},
    )


@case
def claude_code_by_itself() -> Case:
    """A sub-agent has the session's id and a header of its own; a compaction still offers the tools, and forbids them.
    The report of a sub-agent is a reminder and nothing else."""
    key = uid("claude-itself")
    named = {"x-claude-code-session-id": key}
    child = {**named, "x-claude-code-agent-id": "a0b1c2d3e4f5a6b78"}
    agent, worker = system("You are an agent for the terminal."), system("You do one job for another agent.")
    first, then = user("ask somebody {{I have asked.}}"), user("thanks {{Gladly.}}")
    report = user("<system-reminder>\n<task-notification>it counted nine</task-notification>\n</system-reminder>")
    summary = "Use text only, do not call any tools here.\n\nYour task is to write a full summary of the conversation."
    history = [agent, first, bot("I have asked.")]
    step: Json = {"session": key, "tools": 12}
    return Case(
        steps=[
            Step(messages=[agent, first], headers=named, **step),
            Step(messages=[worker, user("count them {{Nine.}}")], turn=1, kind="side", headers=child, **step),
            Step(messages=[*history, report], turn=2, parent=0, kind="side", headers=named, **step),
            Step(
                messages=[*history, user(summary + " {{All of it.}}")],
                turn=3,
                parent=0,
                kind="side",
                headers=named,
                **step,
            ),
            Step(messages=[*history, then], turn=4, parent=0, headers=named, **step),
        ],
        next_states={f"{key}.0": [then["content"]]},
    )


@case
def claude_code_upkeep() -> Case:
    """A question of one token and a title come first; a reminder behind a tool result changes nothing; what is asked
    for behind the whole history is told by its class, or by an order in capitals."""
    key = uid("claude-upkeep")
    named = {"x-claude-code-session-id": key}
    agent, first = system("You are an agent for the terminal."), user("fix the parser {{call make fix}}")
    title = system("You are an agent.\nWrite a plain title (3-7 words) that names the goal of this coding session.")
    ran = [agent, first, bot(None, call("make fix", "call_u_1")), result("fixed", "call_u_1")]
    fixed = "It is fixed: the parser was one token short."
    reminder = user(f"<system-reminder>\nThe list is empty. {{{{{fixed}}}}}\n</system-reminder>")
    history = [*ran, bot(fixed)]
    guess = user("[PREDICTION MODE: say what he may type next.] {{run it}}")
    notes = user("Write down what is worth keeping. {{Kept.}}")
    then = user("no, it is not {{Sorry.}}")
    step: Json = {"session": key, "headers": named}
    told = {**step, "headers": {**named, "x-claude-code-request-class": "auxiliary"}}
    return Case(
        steps=[
            Step(messages=[user("quota {{Q}}")], kind="side", body={"max_tokens": 1}, **step),
            Step(messages=[title, user("fix the parser {{Parser}}")], turn=1, kind="side", **step),
            Step(messages=[agent, first], turn=2, tools=12, **step),
            Step(messages=[*ran, reminder], turn=3, parent=2, tools=12, **step),
            Step(messages=[*history, guess], turn=4, parent=3, kind="side", tools=12, **step),
            Step(messages=[*history, notes], turn=5, parent=3, kind="side", tools=12, **told),
            Step(messages=[*history, then], turn=6, parent=3, tools=12, **step),
        ],
        next_states={f"{key}.2": ["fixed"], f"{key}.3": [then["content"]]},
    )


@case
def claude_code_by_metadata() -> Case:
    """Both forms of `metadata.user_id`; system messages between the others; reminders that come and go."""
    new, old = uid("claude-new"), uid("claude-old")
    reminder = "<system-reminder>\nThe list is empty.\n</system-reminder>\n"
    first, then = "hello claude {{Hello to you.}}", "more {{More.}}"
    agent = system("x-billing: 7\nYou are an agent for the terminal.")
    by_json = {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": new})}}
    by_form = {"metadata": {"user_id": f"user_0a1b_account_{uid('account')}_session_{old}"}}
    named = {"x-claude-code-session-id": new}
    return Case(
        steps=[
            Step(messages=[agent, parts(reminder + first)], session=new, tools=12, body=by_json),
            Step(
                messages=[agent, user(first), bot("Hello to you."), system("The mode is: plan."), user(then)],
                session=new,
                turn=1,
                parent=0,
                tools=12,
                headers=named,
                body=by_json,
            ),
            Step(messages=[agent, user("hello {{Hi.}}")], session=old, tools=12, body=by_form),
            Step(
                messages=[system("Analyze if this message begins a new conversation topic."), user("hello {{Yes}}")],
                session=new,
                turn=2,
                kind="side",
                headers=named,
            ),
        ],
        next_states={f"{new}.0": [then]},
    )


@case
def mini_swe_agent() -> Case:
    """A reply without a call is dropped and its place taken by an error: it is an orphan, and nothing followed it."""
    base = [system("You can use a computer."), user("Solve this: say hello {{call echo hello}}")]
    ran = [*base, bot(None, call("echo hello", "call_b_1")), result('{"output": "hello"} {{I am done.}}', "call_b_1")]
    again = user("Tool call error:\n\nno call found {{call exit}}")
    step: Json = {"session": "mini", "tools": 1}
    return Case(
        steps=[
            Step(messages=base, **step),
            Step(messages=ran, turn=1, parent=0, **step),
            Step(messages=[*ran, again], turn=2, parent=0, **step),
        ],
        next_states={"mini.0": [ran[3]["content"]]},
    )


@case
def pi() -> Case:
    """No id: a `developer` prompt, parts, a growing history."""
    prompt = {"role": "developer", "content": "You are a coding assistant in a terminal."}
    first, second = parts("hello pi {{Hello, me.}}"), parts("run it {{call run}}")
    ran = [prompt, first, bot("Hello, me."), second]
    loop = [*ran, bot(None, call("run", "call_c_1"), reasoning_content="hm"), result("ran\n{{It ran.}}", "call_c_1")]
    step: Json = {"session": "pi", "tools": 4, "body": {"store": False, "reasoning_effort": "medium"}}
    return Case(
        steps=[
            Step(messages=[prompt, first], **step),
            Step(messages=ran, turn=1, parent=0, **step),
            Step(messages=loop, turn=2, parent=1, **step),
        ],
        next_states={"pi.0": ["run it {{call run}}"], "pi.1": ["ran\n{{It ran.}}"]},
    )


@case
def litellm() -> Case:
    """No tools, unknown keys in replayed messages: a growing history is one main session."""
    first, then = user("hello litellm {{Hello, lite.}}"), user("again {{Again!}}")
    replayed = bot("Hello, lite.", provider_specific_fields={"refusal": None})
    return Case(
        steps=[
            Step(messages=[first], session="litellm", headers={"User-Agent": "litellm/1.106.2"}),
            Step(messages=[first, replayed, then], session="litellm", turn=1, parent=0),
        ],
        next_states={"litellm.0": [then["content"]]},
    )


@case
def names_that_cannot_be() -> Case:
    """What programs make by themselves never fails a request; a plain `user` is no session."""
    first, then = user("odd names {{Odd, indeed.}}"), user("so {{So.}}")
    odd = {"prompt_cache_key": "two words", "metadata": {"user_id": '{"session_id": 7}'}, "user": "u1"}
    return Case(
        steps=[
            Step(
                messages=[first], session="odd", body=odd, headers={"x-session-affinity": "an id", "session_id": "x y"}
            ),
            Step(messages=[first, bot("Odd, indeed."), then], session="odd", turn=1, parent=0, body={"user": "u2"}),
        ],
        next_states={"odd.0": [then["content"]]},
    )
