"""A conversation with secrets in it over the redacting store: what is on disk, and that the session goes on."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from openclaw_rl.engine.scripted import ScriptedAnswer, ScriptedEngine, ScriptedOptions
from openclaw_rl.errors import StoreUnavailable
from openclaw_rl.gateway.access.redacting import RedactingStore
from openclaw_rl.gateway.access.shares import AT_ONCE, Shares
from openclaw_rl.gateway.answer.exchange import Background, Exchange, Gateway
from openclaw_rl.gateway.answer.memory import TokenMemory
from openclaw_rl.gateway.sessions.identify import Identity
from openclaw_rl.gateway.sessions.placement import Sessions
from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import Feedback, Message, NextState, Request, Sampling, Skip, Tool, ToolCall, Turn
from tests.factories.turns import make_session, make_turn

KEY = "ghp_" + "a1B2c3D4e5F6" * 3
MAIL = "ann.lee@example.com"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path / "data") as store:
        yield store


@pytest.fixture
def gateway(store: SqliteStore, model: Path, renderer: Renderer) -> Gateway:
    numbers = itertools.count(1)
    replies = (ScriptedAnswer(match="^tell", reply=f"It is {KEY} as you know."),)
    return Gateway(
        engine=ScriptedEngine(model, ScriptedOptions(replies=replies, tokens_per_s=0)),
        renderer=renderer,
        store=RedactingStore(store, Shares(), Background().start),
        sessions=Sessions(timeout_s=60, new_id=lambda: f"s{next(numbers)}"),
        memory=TokenMemory(store.get_turn, model_id="tiny#1"),
        background=Background(),
        model_id="tiny#1",
    )


def says(text: str) -> Message:
    return Message(role="user", content=text)


async def begin(gateway: Gateway, *messages: Message, is_retry: bool = False) -> Exchange:
    asked = Request(messages=messages, sampling=Sampling(max_tokens=500))
    identity = Identity(client="test", session_key=None, kind="main", is_retry=is_retry)
    return await gateway.begin(
        asked, identity, user="local", digest=sha256(repr(asked).encode()).hexdigest(), dialect="chat"
    )


async def answer(
    gateway: Gateway, *messages: Message, deliver: bool = True, is_retry: bool = False
) -> tuple[Message, Turn]:
    """The answer as the client gets it, and the turn as it is on disk."""
    exchange = await begin(gateway, *messages, is_retry=is_retry)
    async with aclosing(exchange.pieces()) as pieces:
        async for _ in pieces:
            pass
    await exchange.commit()
    if deliver:
        await exchange.delivered()
    ((message, _),) = exchange.answers
    session, _, index = exchange.turn_ids[0].rpartition(".")
    turn = await gateway.store.get_turn(session, int(index))
    assert turn is not None
    return message, turn


async def test_a_turn_without_secrets_is_stored_as_it_is(gateway: Gateway) -> None:
    message, turn = await answer(gateway, says("hi"))
    assert (turn.message, turn.skip) == (message, None)
    assert turn.prompt_ids
    assert turn.completion.token_ids


async def test_a_turn_with_a_secret_is_kept_without_it_and_without_its_ids(gateway: Gateway, tmp_path: Path) -> None:
    message, turn = await answer(gateway, says(f"mail {MAIL}"))
    assert message.content == f"You said: mail {MAIL}"
    assert turn.message.content == "You said: mail [redacted email]"
    assert turn.messages == (says("mail [redacted email]"),)
    assert (turn.skip, turn.prompt_ids, turn.num_prefill) == (Skip.REDACTED, (), 0)
    assert (turn.completion.token_ids, turn.completion.logprobs, turn.completion.version_spans) == ((), (), ())
    assert turn.completion.finish_reason == "stop"


async def test_a_secret_that_the_model_said_is_one_too(gateway: Gateway) -> None:
    message, turn = await answer(gateway, says("tell me"))
    assert KEY in message.content
    assert (turn.message.content, turn.skip) == ("It is [redacted github-token] as you know.", Skip.REDACTED)


async def test_nothing_of_it_is_in_the_files(gateway: Gateway, store: SqliteStore, tmp_path: Path) -> None:
    first, turn = await answer(gateway, says("hi"))
    await answer(gateway, says("hi"), first, says(f"no, use {KEY}"))
    await gateway.store.put_feedback(Feedback(session=turn.session, index=0, user="local", given_at=1.0, text=MAIL))
    await store.close()
    data = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file())
    assert KEY.encode() not in data
    assert MAIL.encode() not in data
    reader = StoreReader.open(tmp_path / "data")
    state = reader.next_state(turn.session, 0)
    assert state is not None
    assert state.messages == (says("no, use [redacted github-token]"),)
    assert [given.text for given in reader.feedback(turn.session)] == ["[redacted email]"]
    assert [turn.skip for turn in reader.turns(turn.session)] == [None, Skip.REDACTED]


async def test_the_session_goes_on_from_memory_and_after_a_restart(gateway: Gateway, store: SqliteStore) -> None:
    first, turn = await answer(gateway, says(f"mail {MAIL}"))
    second, later = await answer(gateway, says(f"mail {MAIL}"), first, says("and on"))
    assert (later.session, later.parent, later.skip) == (turn.session, 0, Skip.REDACTED)
    sessions = Sessions(timeout_s=60, new_id=lambda: "new")
    for outline in await store.load_open():
        sessions.restore(outline)
    memory = TokenMemory(store.get_turn, model_id="tiny#1")
    assert await memory.get(turn.session, 0) is None
    restarted = replace(gateway, sessions=sessions, memory=memory)
    exchange = await begin(restarted, says(f"mail {MAIL}"), first, says("and on"), second, says("bye"))
    assert exchange.turn_ids == (f"{turn.session}.2",)
    rendered = gateway.renderer.render((says(f"mail {MAIL}"), first, says("and on"), second, says("bye")), (), {})
    assert exchange.num_prompt_tokens == len(rendered)


async def test_a_retry_of_a_redacted_answer_is_answered_again_and_in_full(gateway: Gateway) -> None:
    question = says(f"mail {MAIL}")
    first, turn = await answer(gateway, question, deliver=False)
    again, other = await answer(gateway, question)
    assert again == first
    assert (other.session, other.index, other.parent, other.skip) == (turn.session, 1, None, Skip.REDACTED)
    third, _ = await answer(gateway, question, is_retry=True)
    assert third == first
    follow_up, last = await answer(gateway, question, again, says("thanks"))
    assert last.session == turn.session
    assert follow_up.content == "You said: thanks"


async def test_a_retry_of_a_clean_answer_is_the_stored_one(gateway: Gateway) -> None:
    _, turn = await answer(gateway, says("hi"), deliver=False)
    exchange = await begin(gateway, says("hi"))
    assert exchange.turn_ids == (turn.id,)


async def test_tools_arguments_thoughts_and_stop_strings_are_redacted(store: SqliteStore) -> None:
    redacting = RedactingStore(store, Shares(), Background().start)
    schema = {"type": "object", "properties": {"to": {"default": MAIL, "enum": [MAIL, 7]}}}
    call = ToolCall(id="c", name="send", arguments=f'{{"to": "{MAIL}"}}')
    turn = make_turn(
        messages=(
            says("go"),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content=f"sent to {MAIL}", tool_call_id="c"),
        ),
        tools=(Tool(name="send", description=f"as {MAIL}", parameters=schema),),
        stop=(MAIL,),
        message=Message(role="assistant", content="done", reasoning=f"{MAIL} is his"),
    )
    await redacting.put_session(make_session())
    await redacting.put_turn(turn)
    await redacting.put_next_state(
        NextState(session=turn.session, index=0, messages=(replace(turn.messages[2]),), arrived_at=1.0)
    )
    stored = await redacting.get_turn(turn.session, 0)
    assert stored is not None
    assert MAIL not in repr(stored)
    assert stored.messages[1].tool_calls[0].arguments == '{"to": "[redacted email]"}'
    assert stored.tools[0].parameters["properties"]["to"] == {
        "default": "[redacted email]",
        "enum": ["[redacted email]", 7],
    }
    assert stored.message.reasoning == "[redacted email] is his"
    assert (stored.chain, stored.request_digest) == (turn.chain, turn.request_digest)
    assert turn.prompt_ids, "the turn that was put is untouched"


async def test_another_reason_to_skip_stays(store: SqliteStore) -> None:
    redacting = RedactingStore(store, Shares(), Background().start)
    await redacting.put_session(make_session())
    await asyncio.gather(redacting.put_turn(make_turn(text=MAIL, skip=Skip.OPTED_OUT)))
    stored = await redacting.get_turn(make_turn().session, 0)
    assert stored is not None
    assert (stored.skip, stored.prompt_ids) == (Skip.OPTED_OUT, ())


async def test_long_texts_are_looked_through_elsewhere_and_records_keep_their_order(store: SqliteStore) -> None:
    shares = Shares(num_threads=1)
    redacting = RedactingStore(store, shares, Background().start)
    busy, free = threading.Event(), threading.Event()

    def occupy(_: object) -> None:
        busy.set()
        assert free.wait(30)

    occupied = asyncio.create_task(shares.run("somebody", AT_ONCE + 1, occupy))
    await asyncio.to_thread(busy.wait, 30)
    await redacting.put_session(make_session())
    turn = make_turn(text=f"{MAIL} " * 2_000, finish_reason="stop")
    put = redacting.put_turn(turn)
    delivered = redacting.mark_delivered(turn.session, turn.index)
    closed = redacting.close_session(turn.session, 9.0)
    await redacting.put_session(replace(make_session(), id="another"))
    assert not any(future.done() for future in (put, delivered, closed)), "they wait for the words before them"
    free.set()
    await asyncio.gather(put, delivered, closed, occupied)
    stored = await redacting.get_turn(turn.session, turn.index)
    assert stored is not None
    assert MAIL not in repr(stored)
    assert stored.delivered


async def test_a_long_text_that_cannot_be_stored_is_told(store: SqliteStore) -> None:
    redacting = RedactingStore(store, Shares(), Background().start)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await redacting.put_feedback(
            Feedback(session="s", index=0, user="u", given_at=1.0, score=1, text="a " * 20_000)
        )
