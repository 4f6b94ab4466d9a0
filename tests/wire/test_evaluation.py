"""Simulated users and the memory baseline talk to the running gateway; what they leave in the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from benchmarks.learning_results import Stability
from benchmarks.memory_chat import HEADING, MemoryChat
from openclaw_rl.backoff import Backoff
from openclaw_rl.evaluation.chat import ChatFailed, HttpChat
from openclaw_rl.evaluation.questions import Question
from openclaw_rl.evaluation.sessions import SessionRecord, run_session
from openclaw_rl.evaluation.users import Brief, Plain
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.types import BASE_VERSION, Message, split_turn_id
from tests.server import Server
from tests.wire.asking import closed, eventually, reader, replies, stored

TOPICS = ("rain", "bees", "volcanoes", "gravity", "magnets", "honey")
QUESTIONS = [Question(kind="open", topic=topic, text=f"What do you know about {topic}?") for topic in TOPICS]
LATE = "|".join(TOPICS[3:])
ESSAY = (
    "There is a lot to say about rain, bees and volcanoes. Rain begins high up where vapour cools and becomes drops. "
    "Bees visit flowers by day and carry what they find to their hive. Volcanoes bring melted rock from deep below to "
    "the surface. All three have shaped the land on which we live. Scientists watch each of them with great patience."
)
BRIEF = "We study rain, bees and volcanoes because they shape our life."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its answers are long, short for whoever complains, and short at once to the later questions."""
    script = replies(
        (f"about ({LATE})", r"We study \1 because they shape our daily life."),
        ("short sentence", BRIEF),
        ("(?i)thank|perfect|exactly", "You are welcome."),
        ("^What do you know", ESSAY),
    )
    with Server(tmp_path_factory.mktemp("evaluation") / "data", script) as running:
        yield running


@pytest.fixture
async def chat(server: Server) -> AsyncIterator[HttpChat]:
    async with HttpChat(server.url, server.key, seed=7, max_tokens=200, backoff=Backoff(first_s=0.01)) as connected:
        yield connected


def said(text: str) -> list[Message]:
    return [Message(role="user", content=text)]


async def test_a_reply_names_its_version_and_its_turn(server: Server, chat: HttpChat) -> None:
    reply = await chat.reply(said(QUESTIONS[3].text), session="one-reply")
    assert reply.text == "We study gravity because they shape our daily life."
    assert (reply.version, reply.finish_reason) == (BASE_VERSION, "stop")
    turn = stored(server, reply.turn_id)
    assert reply.num_tokens == len(turn.completion.token_ids)
    assert turn.message.content == reply.text
    session = reader(server).session(turn.session)
    assert session is not None
    assert (session.key, session.opted_out, session.closed_at) == ("one-reply", False, None)
    assert turn.sampling.max_tokens == 200


async def test_seeds_differ_by_session_and_turn_and_can_be_repeated(server: Server, chat: HttpChat) -> None:
    async def seed(messages: list[Message], session: str) -> int | None:
        return stored(server, (await chat.reply(messages, session=session)).turn_id).sampling.seed

    first = await seed(said("seeds"), "seeds-1")
    assert first is not None
    assert await seed(said("other words"), "seeds-1") == first
    assert await seed(said("seeds"), "seeds-2") != first
    longer = [*said("seeds"), Message(role="assistant", content="You said: seeds"), *said("go on")]
    assert await seed(longer, "seeds-1") != first


async def test_sessions_can_be_made_to_draw_the_same(server: Server) -> None:
    seeds: list[int | None] = []
    async with HttpChat(server.url, server.key, seed=7, seeded_by=lambda name: name.partition(".")[0]) as chat:
        for session in ("same.1", "same.2", "other.1"):
            reply = await chat.reply(said("seeds"), session=session)
            seeds.append(stored(server, reply.turn_id).sampling.seed)
    assert seeds[0] == seeds[1] != seeds[2]


async def test_measuring_leaves_nothing_to_learn_from(server: Server) -> None:
    async with HttpChat(server.url, server.key, learn=False) as quiet:
        reply = await quiet.reply(said("private"), session="measured")
    session = reader(server).session(split_turn_id(reply.turn_id)[0])
    assert session is not None
    assert session.opted_out


async def test_a_version_can_be_pinned_and_an_unknown_one_fails_at_once(server: Server, chat: HttpChat) -> None:
    reply = await chat.reply(said("pinned"), session="pin", model=f"default@{BASE_VERSION}")
    assert reply.version == BASE_VERSION
    with pytest.raises(ChatFailed, match="answered 404") as failure:
        await chat.reply(said("pinned"), session="pin", model="default@v99")
    assert failure.value.status == 404


async def test_a_wrong_key_and_a_dead_server_are_told_apart(server: Server) -> None:
    async with HttpChat(server.url, "wrong") as stranger:
        with pytest.raises(ChatFailed) as failure:
            await stranger.reply(said("hi"), session="s")
        assert failure.value.status == 401
    async with HttpChat("http://127.0.0.1:9/v1", retries=2, backoff=Backoff(first_s=0.01)) as nowhere:
        with pytest.raises(ChatFailed, match="cannot be asked") as failure:
            await nowhere.reply(said("hi"), session="s")
        assert failure.value.status is None


async def test_a_broken_request_is_sent_again() -> None:
    """Two refusals of a busy server, then an answer; a refusal that will not change is not repeated."""
    answers = iter((b"503", b"429", b"200", b"400"))
    asked: list[bytes] = []

    async def serve(incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        head = await incoming.readuntil(b"\r\n\r\n")
        size = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        asked.append(await incoming.readexactly(size))
        status = next(answers)
        body = b'{"choices": [{"message": {"content": "At last."}}]}' if status == b"200" else b"no JSON"
        outgoing.write(
            b"HTTP/1.1 %s X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)
        )
        await outgoing.drain()
        outgoing.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        async with HttpChat(f"http://127.0.0.1:{port}", backoff=Backoff(first_s=0.01)) as chat:
            reply = await chat.reply(said("hi"), session="s")
            assert (reply.text, reply.version, reply.turn_id, reply.num_tokens) == ("At last.", "", "", None)
            assert len(asked) == 3
            assert len(set(asked)) == 1
            with pytest.raises(ChatFailed, match="answered 400: no reason that can be read"):
                await chat.reply(said("hi"), session="s")
            assert len(asked) == 4


async def test_simulated_sessions_end_to_end(server: Server, chat: HttpChat) -> None:
    """The engine answers better from the fourth question on: what the user, the judge and the measure make of it."""
    records: list[SessionRecord] = [
        await run_session(chat, Brief(), question, session=f"lesson-{number}", max_turns=3)
        for number, question in enumerate(QUESTIONS)
    ]
    assert [r.first_reply_ok for r in records] == [False] * 3 + [True] * 3
    assert str(Stability.of([r.first_reply_ok for r in records], cap=6)) == "4"
    assert all(r.is_content for r in records)
    assert [len(r.exchanges) for r in records] == [2, 2, 2, 1, 1, 1]
    assert records[0].first_score < 0.2 < 0.9 < records[3].first_score

    session_id, _ = split_turn_id(records[0].exchanges[0].reply.turn_id)
    assert eventually(lambda: closed(server, session_id)) is not None
    turns = reader(server).turns(session_id)
    assert [t.index for t in turns] == [0, 1, 2]
    assert turns[1].prompt_ids[: len(turns[0].prompt_ids)] == turns[0].prompt_ids
    assert turns[2].sampling.max_tokens == 16

    eventually(lambda: len(reader(server).judgements(session_id)) >= 2)
    verdicts = {one.index: one.verdict for one in reader(server).judgements(session_id)}
    assert verdicts[0].score == -1
    assert "one short sentence" in verdicts[0].hints[0].lower()
    assert verdicts[1].score == 1


async def test_the_memory_baseline_writes_into_the_recorded_request(server: Server) -> None:
    async with HttpChat(server.url, server.key, learn=False) as quiet:
        memory = MemoryChat(quiet, RulesJudge())
        first = await run_session(memory, Brief(), QUESTIONS[0], session="memory-1")
        second = await run_session(memory, Brief(), QUESTIONS[4], session="memory-2")
    assert stored(server, first.exchanges[0].reply.turn_id).messages[0].role == "user"
    turn = stored(server, second.exchanges[0].reply.turn_id)
    assert turn.messages[0].role == "system"
    assert turn.messages[0].content.startswith(HEADING)
    assert "one short sentence" in turn.messages[0].content.lower()
    session = reader(server).session(turn.session)
    assert session is not None
    assert session.opted_out


async def test_what_one_user_complains_of_another_is_content_with(chat: HttpChat) -> None:
    record = await run_session(chat, Plain(), QUESTIONS[0], session="plain")
    assert record.first_reply_ok
    assert record.exchanges[0].reply.text == ESSAY
