"""What the headers, body keys and words of a request say about its sender."""

from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.sessions.identify import Identity, identify
from openclaw_rl.gateway.sessions.wording import said
from openclaw_rl.types import Message, Tool, ToolCall

RUNTIME = "Runtime: agent=main | session={name}{id} | host=vm | os=Linux"
UUID = "0a1b2c3d-0000-4000-8000-00000000000f"
CARRIER = Message(
    role="user", content="<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
)
BOT = Message(role="assistant", content="ok")
TOOLS = (Tool(name="exec"),)
CLAW = "You help one person, inside OpenClaw."
CALLED = Message(role="assistant", content="", tool_calls=(ToolCall(id="c", name="exec", arguments="{}"),))
RESULT = Message(role="tool", content="a.txt", tool_call_id="c")
REMINDER = "<system-reminder>\nThe list is empty.\n</system-reminder>"
ONE_LINE = "\nCurrent time: Monday, January 7th, 2030 - 9:00 AM (UTC) / 2030-01-07 09:00 UTC"


def seen(
    *words: str | Message,
    headers: dict[str, str] | None = None,
    body: dict[str, Any] | None = None,
    system: str = "",
    tools: tuple[Tool, ...] = (),
) -> Identity:
    messages = [Message(role="system", content=system)] if system else []
    messages += [w if isinstance(w, Message) else Message(role="user", content=w) for w in words]
    return identify(CIMultiDict(headers or {}), body or {}, messages, tools)


@pytest.mark.parametrize(
    ("headers", "body", "first", "key"),
    [
        ({"X-Session-Affinity": "a:1", "X-Session-Id": "b"}, {"prompt_cache_key": "c"}, "hi", "a:1"),
        ({"X-Session-Affinity": "a:1", "X-Session-Id": "a"}, {}, "hi", "a"),
        ({"X-Session-Affinity": "a:1", "X-Client-Request-Id": "a:1"}, {}, "hi", "a"),
        ({"X-Session-Affinity": f"{UUID}:12"}, {}, "hi", UUID),
        ({"X-Session-Id": f"{UUID}:12"}, {}, "hi", f"{UUID}:12"),
        (
            {},
            {"prompt_cache_key": "u-1:3"},
            "hi\n\n" + RUNTIME.format(name="agent:main:main", id=" | sessionId=u-1"),
            "u-1",
        ),
        ({"X-Session-Affinity": "two words", "session_id": "c"}, {}, "hi", "c"),
        ({}, {"prompt_cache_key": "two words", "metadata": {"user_id": '{"session_id": "m"}'}}, "hi", "m"),
        ({}, {"prompt_cache_key": ["x"], "metadata": {"user_id": f"user_0a_account_1_session_{UUID}"}}, "hi", UUID),
        ({}, {"metadata": {"user_id": '{"session_id": "m"'}}, "hi", None),
        ({}, {"metadata": {"user_id": '["session_id"]'}}, "hi", None),
        ({}, {"metadata": {"user_id": "someone"}, "user": "someone"}, "hi", None),
        ({}, {"metadata": "m"}, "hi", None),
        ({}, {}, "Runtime: pasted=1 | sessionId=no\n\n" + RUNTIME.format(name="n", id=" | sessionId=u-1"), "u-1"),
        ({}, {}, "hi\n\n" + RUNTIME.format(name="n", id=" | sessionId=my own words"), None),
        ({"X-Session-Id": "b", "session-id": "c"}, {"session_id": "d"}, "hi", "b"),
        ({"session_id": "c"}, {}, "hi", "c"),
        ({"X-Claude-Code-Session-Id": "e"}, {}, "hi", "e"),
        ({}, {"session_id": "d", "prompt_cache_key": "c"}, "hi", "d"),
        ({}, {"prompt_cache_key": "c"}, "hi", "c"),
        ({}, {}, "hi\n\n" + RUNTIME.format(name="agent:main:main", id=" | sessionId=u-1"), "u-1"),
        ({}, {}, "hi\n\n" + RUNTIME.format(name="agent:main:cron:7", id=""), "agent:main:cron:7"),
        ({"X-Session-Id": ""}, {"session_id": None}, "hi", None),
    ],
)
def test_the_session_key_is_the_first_that_is_given(
    headers: dict[str, str], body: dict[str, Any], first: str, key: str | None
) -> None:
    assert seen(first, headers=headers, body=body).session_key == key


@pytest.mark.parametrize("bad", ["two words", "é", "x" * 201, 7, ["x"]])
def test_a_session_key_that_cannot_be_a_header_is_refused(bad: object) -> None:
    with pytest.raises(RequestError, match="session_id"):
        seen("hi", body={"session_id": bad})
    if isinstance(bad, str):
        with pytest.raises(RequestError, match="x-session-id"):
            seen("hi", headers={"X-Session-Id": bad})


def test_only_a_call_without_tools_that_names_its_session_is_in_doubt() -> None:
    named = {"X-Session-Id": "s"}
    assert seen("hi", headers=named).is_doubtful
    assert seen("hi", body={"session_id": "s"}).is_doubtful
    assert not seen("hi", headers=named, tools=TOOLS).is_doubtful
    assert not seen("hi", headers={**named, "X-Turn-Type": "main"}).is_doubtful
    assert not seen("hi").is_doubtful
    assert not seen("hi", body={"prompt_cache_key": "s"}).is_doubtful


def test_the_clients_own_name_for_its_call_is_kept() -> None:
    assert seen("hi", headers={"X-Turn-Kind": " Cron\x07 "}).label == "cron"
    assert seen("hi", headers={"x-codex-turn-metadata": '{"request_kind": "turn"}'}).label == "turn"
    assert seen("hi", headers={"x-codex-turn-metadata": '{"request_kind": 7}'}).label == ""
    assert seen("hi").label == ""


@pytest.mark.parametrize(
    ("headers", "body", "kind"),
    [
        pytest.param({"X-Turn-Kind": "user"}, {}, "main", id="a person's turn"),
        pytest.param({"X-Turn-Kind": "chat"}, {}, "main", id="a label that nobody knows"),
        pytest.param({"X-Turn-Kind": "heartbeat"}, {}, "side", id="heartbeat"),
        pytest.param({"X-Turn-Kind": "sub:user"}, {}, "side", id="sub-agent"),
        pytest.param({"X-Session-Key": "agent:main:subagent:7"}, {}, "side", id="sub-agent by session"),
        pytest.param({"X-Session-Key": "agent:main:hook:7"}, {}, "side", id="webhook by session"),
        pytest.param({"X-Session-Key": "agent:cronies:main"}, {}, "main", id="a session that only sounds so"),
        pytest.param({"X-Parent-Session-Id": "p"}, {}, "side", id="sub-agent of opencode"),
        pytest.param({"X-Session-Id": "agent:main:cron:7"}, {}, "side", id="a job by session"),
        pytest.param({"X-Session-Id": "helper"}, {}, "main", id="a person's session"),
        pytest.param({"X-Session-Id": "team:cron:7"}, {}, "main", id="another of a person's"),
        pytest.param({"X-Claude-Code-Agent-Id": "a"}, {}, "side", id="sub-agent of Claude Code"),
        pytest.param({"X-Claude-Code-Parent-Agent-Id": "a"}, {}, "side", id="its sub-agent's sub-agent"),
        pytest.param({"X-Claude-Code-Request-Class": "Main"}, {}, "main", id="Claude Code's turn"),
        pytest.param({"X-Claude-Code-Request-Class": "auxiliary"}, {}, "side", id="Claude Code's upkeep"),
        pytest.param({"X-OpenAI-Subagent": "review"}, {}, "side", id="sub-agent of Codex"),
        pytest.param({"x-codex-turn-metadata": '{"request_kind":"turn"}'}, {}, "main", id="Codex's turn"),
        pytest.param({"x-codex-turn-metadata": '{"request_kind":"compaction"}'}, {}, "side", id="Codex's compaction"),
        pytest.param({"x-codex-turn-metadata": '{"request_kind":null}'}, {}, "main", id="a kind that is none"),
        pytest.param({"x-codex-turn-metadata": '{"request_kind":"comp'}, {}, "main", id="broken metadata"),
        pytest.param({"x-codex-turn-metadata": "[1]"}, {}, "main", id="metadata that is no object"),
        pytest.param(
            {"x-codex-turn-metadata": "?"},
            {"client_metadata": {"x-codex-turn-metadata": '{"request_kind":"prewarm"}'}},
            "side",
            id="metadata in the body",
        ),
        pytest.param({}, {"client_metadata": 7}, "main", id="client metadata that is no object"),
    ],
)
def test_the_kind_is_told_by_names(headers: dict[str, str], body: dict[str, Any], kind: str) -> None:
    assert seen("hi", headers=headers, body=body, tools=TOOLS).kind == kind


@pytest.mark.parametrize(
    ("headers", "body", "kind"),
    [
        ({"X-Turn-Type": " Side "}, {}, "side"),
        ({"X-Turn-Type": "main"}, {"turn_type": "side"}, "main"),
        ({}, {"turn_type": "side"}, "side"),
    ],
)
def test_what_the_client_says_about_the_turn_wins(headers: dict[str, str], body: dict[str, Any], kind: str) -> None:
    assert seen("hi", headers=headers, body=body).kind == kind


def test_an_unknown_turn_type_is_refused() -> None:
    with pytest.raises(RequestError, match="main or side"):
        seen("hi", headers={"X-Turn-Type": "maim"})


@pytest.mark.parametrize(
    ("words", "system", "tools", "kind"),
    [
        pytest.param(("hi",), "", (), "main", id="a stock client"),
        pytest.param(("hi", CARRIER), "You are a personal assistant.", TOOLS, "main", id="an agent's turn"),
        pytest.param(
            ("hi", "Follow the heartbeat monitor scratch context.", CARRIER), "x", TOOLS, "side", id="heartbeat"
        ),
        pytest.param(("Read HEARTBEAT.md if it exists",), CLAW, TOOLS, "side", id="older heartbeat"),
        pytest.param(("[cron:7 nightly] do it",), "", TOOLS, "side", id="cron"),
        pytest.param(("a", "Pre-compaction memory flush. Store …"), CLAW, TOOLS, "side", id="memory flush"),
        pytest.param(("<conversation>…",), "You are a context summarization assistant.", (), "side", id="compaction"),
        pytest.param(("hi",), "Generate a concise session title (3-6 words)", (), "side", id="title"),
        pytest.param(("hi",), "You are a title generator.", (), "side", id="another title"),
        pytest.param(("x",), "You are keeping a dream diary.", (), "side", id="diary"),
        pytest.param(("diff",), "It generates concise, one-line Git commit messages", (), "side", id="commit message"),
        pytest.param(
            ("x", "Well.\nNow produce the final user-visible answer now."), "", (), "side", id="recovery pass"
        ),
        pytest.param(
            ("x\n" + RUNTIME.format(name="agent:main:subagent:u", id=" | sessionId=u"),),
            "",
            TOOLS,
            "side",
            id="subagent",
        ),
        pytest.param(
            ("x", "Nobody saw that. Reply with a text-only answer."), "", (), "side", id="another recovery pass"
        ),
        pytest.param(("Reply with a text-only answer.",), "", (), "main", id="a person asks for plain text"),
        pytest.param(
            ("x", "Do your rounds.\nCurrent time: Monday, 9:00 AM (UTC)\nReference UTC: 2030-01-07 09:00 UTC"),
            "",
            TOOLS,
            "side",
            id="a heartbeat of the owner's own words",
        ),
        pytest.param(("[OpenClaw exec completion]\nmore",), "", TOOLS, "side", id="the end of a command"),
        pytest.param(("[openclaw docs](http://x) are wrong",), "", TOOLS, "main", id="a link"),
        pytest.param(("Read HEARTBEAT.md and fix the typos",), "", TOOLS, "main", id="a person's file"),
        pytest.param(("A background task failed yesterday. Why?",), "", TOOLS, "main", id="a person's report"),
        pytest.param(("x", BOT, CARRIER), "", TOOLS, "side", id="a report in the carrier"),
        pytest.param(("x", BOT), "", TOOLS, "main", id="an answer to be continued"),
        pytest.param(
            ("### Task:\nWrite a headline.\n<chat_history>\nUSER: x\n</chat_history>",),
            "",
            (),
            "side",
            id="a transcript",
        ),
        pytest.param(("What is this?\n<transcript>\nx\n</transcript>",), "", (), "main", id="a person's transcript"),
        pytest.param(
            ("x", BOT, "Your task is to write a detailed summary of the conversation so far."),
            "",
            (),
            "side",
            id="compact",
        ),
        pytest.param(("x", BOT, "y"), "You summarize conversations.", (), "side", id="a summary of messages"),
        pytest.param(
            ("x", BOT, "y"), "You are kind. " * 20 + "Asked to, summarize the conversation.", (), "main", id="a skill"
        ),
        pytest.param(("x",), "Briefly summarize this partial conversation.", (), "side", id="aider's summary"),
        pytest.param(("Write a git commit message for me",), "You help.", (), "main", id="a person's own wish"),
        pytest.param(("hi",), "Keep the session title short.", TOOLS, "main", id="an agent that knows of titles"),
    ],
)
def test_housekeeping_is_told_by_its_words(
    words: tuple[str | Message, ...], system: str, tools: tuple[Tool, ...], kind: str
) -> None:
    assert seen(*words, system=system, tools=tools).kind == kind


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        pytest.param(("fix it", CALLED, RESULT, REMINDER), "main", id="a reminder behind a tool result"),
        pytest.param(("fix it", REMINDER), "main", id="a reminder behind a question"),
        pytest.param((REMINDER,), "main", id="nothing but a reminder"),
        pytest.param(("fix it", BOT, REMINDER), "side", id="a report"),
        pytest.param(("fix it", BOT, REMINDER, CALLED, RESULT, REMINDER), "side", id="a report's tool loop"),
        pytest.param(("[cron:7 nightly] do it", CALLED, RESULT, REMINDER), "side", id="a job's tool loop"),
        pytest.param(("fix it", BOT, "[2030-01-07 09:00]"), "main", id="a bare date"),
        pytest.param(
            ("fix it", BOT, "<system-reminder>\nThe user sent a new message: no, stop\n</system-reminder>"),
            "main",
            id="a person's words in a reminder",
        ),
        pytest.param(("x", BOT, "[PREDICTION MODE: say what he may type]\n\nOne line."), "side", id="a guess"),
        pytest.param(("x", BOT, "This is a FULL CONTEXT COMPACTION. Hand over."), "side", id="a hand-over"),
        pytest.param(("x", BOT, "NOTE: answer with TEXT ONLY.\n\nNow condense."), "side", id="a text-only order"),
        pytest.param(("x", BOT, "You act as the memory subagent now."), "side", id="memory"),
        pytest.param(("x", BOT, "The user stepped away; say where he was."), "side", id="a recap"),
        pytest.param(
            ("x", BOT, "Now then.\n\nYour task is to write a long summary of our whole conversation so far."),
            "side",
            id="a summary with tools",
        ),
        pytest.param(("[URGENT BUG] fix it",), "main", id="a person shouts"),
        pytest.param(("x", BOT, "The user table is broken"), "main", id="a person's user"),
        pytest.param(("x", BOT, "You are now acting as the travel agent."), "main", id="a game of a person"),
        pytest.param(("x", BOT, "Explain LEVELED COMPACTION in a store"), "main", id="a term of a person"),
        pytest.param(("x", BOT, "[DARK MODE] is broken"), "main", id="a heading of a person"),
        pytest.param(("x", BOT, "You are using a subagent too often"), "main", id="a complaint"),
    ],
)
def test_who_asked_last_is_no_reminder_and_no_upkeep(words: tuple[str | Message, ...], kind: str) -> None:
    assert seen(*words, tools=TOOLS).kind == kind


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        pytest.param(("x", BOT, "A scheduled reminder was triggered: drink." + ONE_LINE), "side", id="reminder"),
        pytest.param(("A scheduled reminder was triggered: drink.",), "side", id="reminder without its time"),
        pytest.param(("x", BOT, "See my mails. If there are none reply HEARTBEAT_OK."), "side", id="own heartbeat"),
        pytest.param(("x", BOT, "See my mails." + ONE_LINE), "side", id="own heartbeat, nothing to reply"),
        pytest.param(("A new session was started by /new. Greet." + ONE_LINE,), "main", id="greeting"),
        pytest.param(("[Mon 2030-01-07 09:00 UTC] [Subagent Context] You are one.\n\nFind it",), "side", id="child"),
        pytest.param(
            ("[Subagent Context] You are one.\n\nFind it", CALLED, RESULT), "side", id="the tool loop of a child"
        ),
        pytest.param(("Make a short filename slug of this.\n\nuser: x",), "side", id="slug"),
        pytest.param(("x", BOT, "Make it use a filename slug"), "main", id="a person's slug"),
        pytest.param(("x", BOT, "System (untrusted): [2030-01-07 09:00:00 UTC] A node came"), "side", id="event"),
        pytest.param(("x", BOT, "System (untrusted): [2030-01-07 09:00:00 UTC] A\n\nhi"), "main", id="words below it"),
        pytest.param(("x", BOT, "What prints HEARTBEAT_OK?"), "main", id="a person's question about a token"),
    ],
)
def test_what_openclaw_does_by_itself(words: tuple[str | Message, ...], kind: str) -> None:
    assert seen(*words, system=CLAW, tools=TOOLS).kind == kind


@pytest.mark.parametrize("tools", [(), TOOLS])
@pytest.mark.parametrize(
    "words",
    [
        "Read HEARTBEAT.md if it exists and tell me what it says",
        "Check the heartbeat monitor on server 3, please",
        "The heartbeat should reply HEARTBEAT_OK. Why does it not?",
        "Explain memory flush. I do not get it.",
        "Memory flush: what does this Redis log line mean?",
        "[cron: my crontab line] why does it not run?",
        "[system message] what does this mean in my group?",
        "[OpenClaw 2026.9.6]\nhow do I install it?",
        "Current time: 10:00\nUTC offset: +2\nwhat time is it in Tokyo?",
        "Continue from the transcript below:\nA: hi",
        "The previous response has no visible text on my phone. Say it again.",
        "<transcript>\nBob: hi\n</transcript>\nWhat did Bob mean?",
        "# Task\nTranslate.\n<transcript>\nBob: hi\n</transcript>",
        "Your task is to write a short summary of the conversation in the pdf above",
        "Runtime: os=Linux | python=3.12 | gpu=none",
        "A background job failed last night and I must explain it to the user. Help me write a mail.",
        "A scheduled reminder is triggered twice by my script. Why?",
        "System: [error] disk full",
        "OpenClaw runtime context is confusing me, what is it?",
        "OpenClaw runtime event log:\nwhat does this mean?",
        "Make a filename slug of this title",
    ],
)
def test_what_people_write_is_theirs(words: str, tools: tuple[Tool, ...]) -> None:
    for before in ((), ("hi", BOT)):
        identity = seen(*before, words, headers={"User-Agent": "OpenAI/Python"}, tools=tools)
        assert (identity.kind, identity.client) == ("main", "OpenAI/Python")


@pytest.mark.parametrize(
    ("system", "first", "later"),
    [
        pytest.param("You are a Git tutor: teach how to write good commit messages.", "main", "main", id="tutor"),
        pytest.param("You write one-line commit messages.", "side", "main", id="commit messages"),
        pytest.param("You help Ann. She likes session titles in bold.", "side", "main", id="a taste"),
        pytest.param("Summarize all that was done here in this conversation.", "side", "side", id="summary"),
        pytest.param("Write a plain title (3-7 words) of what he wants.", "side", "side", id="title and its length"),
        pytest.param("Write the title that names the goal of this coding session.", "side", "side", id="its title"),
    ],
)
def test_a_prompt_for_one_thing_is_upkeep_unless_a_conversation_grows_under_it(
    system: str, first: str, later: str
) -> None:
    assert seen("x", system=system).kind == first
    assert seen("x", Message(role="assistant", content="{"), system=system).kind == first
    assert seen("x", BOT, "y", system=system).kind == later


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_one_token_without_tools_is_nobodys_answer(key: str) -> None:
    assert seen("x", body={key: 1}).kind == "side"
    assert seen("x", body={key: 2}).kind == "main"
    assert seen("x", body={key: True}).kind == "main"
    assert seen("x", body={key: 1}, tools=TOOLS).kind == "main"


def test_a_line_that_never_ends_is_not_looked_through() -> None:
    line = "hi\n\nRuntime: agent=main | session=s | x="
    assert seen(line + "y").session_key == "s"
    assert seen(line + "y" * 10_000).session_key is None


def test_words_that_a_client_wrapped_are_the_persons() -> None:
    lead, end = "The user sent the following message:", "Please address this message."
    wrapped = f"<system-reminder>\n{lead}\n{{}}\n\n{end}\n</system-reminder>"
    message = Message(role="user", content=wrapped.format("no: stop\n\nuse find"))
    assert said(message) == "no: stop\n\nuse find"
    assert said(Message(role="user", content=f"{REMINDER}hi{wrapped.format('you')}{REMINDER}")) == "hi\nyou"
    plain = "<system-reminder>The user sent a new message while you worked: no\n\nstop</system-reminder>"
    assert said(Message(role="user", content=plain)) == "no\n\nstop"


def test_the_client_is_named_after_what_it_sends() -> None:
    assert seen("hi", headers={"User-Agent": "OpenAI/Python 2.54.0"}).client == "OpenAI/Python"
    assert seen("hi\n\n" + RUNTIME.format(name="agent:main:main", id="")).client == "openclaw"
    assert seen("hi").client == "unknown"


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
def test_the_end_of_a_session_and_the_wish_not_to_be_trained_on(value: str) -> None:
    assert seen("hi", headers={"X-Session-Done": value}).session_done
    assert seen("hi", headers={"X-No-Train": value}).no_train == "session"
    assert not seen("hi", headers={"X-Session-Done": "0"}).session_done
    assert seen("hi", body={"session_done": True}).session_done


@pytest.mark.parametrize("values", [("0", "1"), ("1", "0"), ("message", "session")])
def test_of_two_headers_the_stricter_counts(values: tuple[str, ...]) -> None:
    headers = CIMultiDict(("X-No-Train", value) for value in values)
    assert identify(headers, {}, [Message(role="user", content="hi")], ()).no_train == "session"


def test_a_client_may_say_that_it_retries() -> None:
    assert not seen("hi", headers={"X-Stainless-Retry-Count": "0"}).is_retry
    assert seen("hi", headers={"X-Stainless-Retry-Count": "1"}).is_retry
    assert seen("hi", headers={"Idempotency-Key": "k"}).is_retry


@pytest.mark.parametrize(
    ("headers", "body", "no_train"),
    [
        ({}, {}, None),
        ({"X-No-Train": "session"}, {}, "session"),
        ({"X-No-Train": " Message "}, {}, "message"),
        ({"X-No-Train": "turn"}, {}, "message"),
        ({"X-No-Train": "false"}, {"no_train": True}, "session"),
        ({"X-No-Train": "message"}, {"no_train": True}, "session"),
        ({"X-No-Train": "session"}, {"no_train": "message"}, "session"),
        ({}, {"no_train": True}, "session"),
        ({}, {"no_train": "message"}, "message"),
        ({}, {"no_train": None}, None),
    ],
)
def test_how_far_the_wish_not_to_be_trained_on_reaches(
    headers: dict[str, str], body: dict[str, Any], no_train: str | None
) -> None:
    assert seen("hi", headers=headers, body=body).no_train == no_train


@pytest.mark.parametrize("body", [{"no_train": "always"}, {"no_train": ["message"]}, {"no_train": {}}])
def test_an_unknown_reach_is_refused_and_named(body: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="no_train is true, false, session or message"):
        seen("hi", body=body)


@pytest.mark.parametrize("headers", [{"X-No-Train": "maybe"}, {"X-Session-Done": "later"}])
def test_a_wish_that_is_not_understood_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(RequestError, match="true or false|true, false, session or message"):
        seen("hi", headers=headers)
