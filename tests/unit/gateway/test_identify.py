"""What the headers, body keys and words of a request say about its sender."""

from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.identify import Identity, identify
from openclaw_rl.types import Message, Tool

RUNTIME = "Runtime: agent=main | session={name}{id} | host=vm | os=Linux"
UUID = "0a1b2c3d-0000-4000-8000-00000000000f"
CARRIER = Message(
    role="user", content="<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
)
BOT = Message(role="assistant", content="ok")
TOOLS = (Tool(name="exec"),)


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
        pytest.param({"X-OpenAI-Subagent": "review"}, {}, "side", id="sub-agent of Codex"),
        pytest.param({"x-codex-turn-metadata": '{"request_kind":"turn"}'}, {}, "main", id="Codex's turn"),
        pytest.param({"x-codex-turn-metadata": '{"request_kind":"compaction"}'}, {}, "side", id="Codex's compaction"),
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
        pytest.param(("Read HEARTBEAT.md if it exists",), "", TOOLS, "side", id="older heartbeat"),
        pytest.param(("[cron:7 nightly] do it",), "", TOOLS, "side", id="cron"),
        pytest.param(("a", "Pre-compaction memory flush. Store …"), "", TOOLS, "side", id="memory flush"),
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
