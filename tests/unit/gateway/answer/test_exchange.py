"""A request to its turns, with the real store, the real renderer and the scripted engine in this process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.engine.scripted import ScriptedAnswer, ScriptedEngine, ScriptedOptions
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable, RequestError
from openclaw_rl.gateway.answer.exchange import Background, Exchange, Gateway
from openclaw_rl.gateway.answer.heads import PromptHeads
from openclaw_rl.gateway.answer.memory import TokenMemory
from openclaw_rl.gateway.sessions.identify import Identity, NoTrain
from openclaw_rl.gateway.sessions.placement import Sessions
from openclaw_rl.protocols import Renderer
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import (
    Delta,
    Episode,
    GenerateRequest,
    Message,
    Request,
    Sampling,
    Session,
    Skip,
    Tool,
    Turn,
    TurnKind,
)

SCRIPT = (
    ScriptedAnswer(match="^call", reply='<tool_call>\n{"name": "run", "arguments": {"x": 1}}\n</tool_call>'),
    ScriptedAnswer(match="^long", reply="word " * 400),
)


@pytest.fixture
async def gateway(tmp_path: Path, model: Path, renderer: Renderer) -> AsyncIterator[Gateway]:
    async with await SqliteStore.open(tmp_path / "data") as store:
        numbers = itertools.count(1)
        yield Gateway(
            engine=ScriptedEngine(model, ScriptedOptions(replies=SCRIPT, tokens_per_s=0)),
            renderer=renderer,
            store=store,
            sessions=Sessions(timeout_s=60, new_id=lambda: f"s{next(numbers)}"),
            memory=TokenMemory(store.get_turn, model_id="tiny#1"),
            background=Background(),
            model_id="tiny#1",
        )


def says(text: str, role: str = "user") -> Message:
    return Message(role=role, content=text)  # type: ignore[arg-type]


async def begin(
    gateway: Gateway,
    *messages: Message,
    kind: TurnKind = "main",
    no_train: NoTrain | None = None,
    **request: object,
) -> Exchange:
    asked = Request(messages=messages, **{"sampling": Sampling(max_tokens=1000), **request})  # type: ignore[arg-type]
    identity = Identity(client="test", session_key=None, kind=kind, no_train=no_train)
    return await gateway.begin(asked, identity, user="local", digest=repr(asked), dialect="chat")


async def answer(gateway: Gateway, *messages: Message, **request: object) -> Turn:
    """One exchange to its end; the turn as it is on disk."""
    exchange = await begin(gateway, *messages, **request)  # type: ignore[arg-type]
    async with aclosing(exchange.pieces()) as pieces:
        async for _ in pieces:
            pass
    await exchange.commit()
    await exchange.delivered()
    session, _, index = exchange.turn_ids[0].rpartition(".")
    turn = await gateway.store.get_turn(session, int(index))
    assert turn is not None
    return turn


def extends(later: Turn, earlier: Turn) -> bool:
    ids = earlier.prompt_ids + earlier.completion.token_ids
    return later.prompt_ids[: len(ids)] == ids


async def test_a_conversation_extends_the_exact_ids_of_its_turns(gateway: Gateway) -> None:
    first = await answer(gateway, says("hi"))
    second = await answer(gateway, says("hi"), first.message, says("and on"))
    third = await answer(gateway, says("hi"), first.message, says("and on"), second.message, says("bye"))
    assert (second.session, second.parent, third.parent) == (first.session, 0, 1)
    assert extends(second, first)
    assert extends(third, second)
    assert third.message.content == "You said: bye"


async def test_the_ids_stay_exact_after_a_restart(gateway: Gateway) -> None:
    first = await answer(gateway, says("hi"))
    sessions = Sessions(timeout_s=60, new_id=lambda: "new")
    for outline in await gateway.store.load_open():  # type: ignore[attr-defined]
        sessions.restore(outline)
    restarted = replace(gateway, sessions=sessions, memory=TokenMemory(gateway.store.get_turn, model_id="tiny#1"))
    second = await answer(restarted, says("hi"), first.message, says("and on"))
    assert second.session == first.session
    assert extends(second, first)


async def test_a_changed_system_prompt_is_rendered_anew_around_the_sampled_ids(
    gateway: Gateway, renderer: Renderer
) -> None:
    first = await answer(gateway, says("It is 10:00.", "system"), says("hi"))
    second = await answer(gateway, says("It is 10:01.", "system"), says("hi"), first.message, says("and on"))
    assert second.parent == 0
    assert not extends(second, first)
    assert "10:01" in renderer.decode(second.prompt_ids)
    sampled, prompt = first.completion.token_ids, second.prompt_ids
    assert any(prompt[i : i + len(sampled)] == sampled for i in range(len(prompt)))


async def test_a_forced_tool_call_is_given_its_opening_and_keeps_it(gateway: Gateway) -> None:
    tool = Tool(name="run")
    first = await answer(gateway, says('{"x": 1}}'), tools=(tool,), tool_choice="required", forced_tool="run")
    assert first.num_prefill > 0
    second = await answer(gateway, says('{"x": 1}}'), first.message, says("done", "tool"), tools=(tool,))
    assert second.parent == 0
    assert extends(second, first)


async def test_several_choices_are_several_turns(gateway: Gateway) -> None:
    exchange = await begin(gateway, says("hi"), num_choices=3)
    numbers = {number async for number, _ in exchange.pieces()}
    await exchange.commit()
    assert numbers == {0, 1, 2}
    assert exchange.turn_ids == ("s1.0", "s1.1", "s1.2")
    for index in range(3):
        turn = await gateway.store.get_turn("s1", index)
        assert turn is not None
        assert turn.message.content == "You said: hi"


async def test_a_client_that_goes_away_leaves_an_aborted_turn(gateway: Gateway) -> None:
    exchange = await begin(gateway, says("long"))
    async with aclosing(exchange.pieces()) as pieces:
        await anext(pieces)
    await gateway.background.drain()
    turn = await gateway.store.get_turn("s1", 0)
    assert turn is not None
    assert (turn.skip, turn.completion.finish_reason) == (Skip.ABORTED, "abort")
    assert 0 < len(turn.completion.token_ids) < 400
    again = await answer(gateway, says("long"))
    assert (again.id, again.skip, again.completion.finish_reason) == (turn.id, None, "stop")


class FailingEngine(ScriptedEngine):
    """Fails every answer, before or after its first tokens."""

    error: Exception
    num_deltas = 0

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        async with aclosing(super().generate(request)) as deltas:
            for _ in range(self.num_deltas):
                yield await anext(deltas)
        raise self.error


@pytest.mark.parametrize("num_deltas", [0, 1])
@pytest.mark.parametrize(
    ("error", "skip"),
    [
        (EngineError("the model computed NaN"), Skip.ENGINE_FAILED),
        (EngineLost("it died"), Skip.ENGINE_LOST),
        (EngineUnavailable("none came up"), Skip.ENGINE_LOST),
    ],
)
async def test_an_engine_that_is_away_is_told_from_one_that_fails_over_an_answer(
    gateway: Gateway, model: Path, error: EngineError, skip: Skip, num_deltas: int
) -> None:
    engine = FailingEngine(model, ScriptedOptions(replies=SCRIPT, tokens_per_s=0))
    engine.error, engine.num_deltas = error, num_deltas
    exchange = await begin(replace(gateway, engine=engine), says("long"))
    with pytest.raises(type(error)):
        async for _ in exchange.pieces():
            pass
    turn = await gateway.store.get_turn("s1", 0)
    assert turn is not None
    assert (turn.skip, turn.completion.finish_reason) == (skip, "error")
    assert bool(turn.completion.token_ids) == bool(num_deltas)


async def test_a_cancelled_commit_is_still_written_and_the_retry_gets_it(gateway: Gateway) -> None:
    exchange = await begin(gateway, says("hi"))
    async for _ in exchange.pieces():
        pass
    committing = asyncio.create_task(exchange.commit())
    await asyncio.sleep(0)
    committing.cancel()
    await asyncio.gather(committing, return_exceptions=True)
    await gateway.background.drain()
    again = await begin(gateway, says("hi"))
    assert again.turn_ids == exchange.turn_ids
    events = [event async for _, piece in again.pieces() for event in piece.events]
    assert "".join(e.text for e in events) == "You said: hi"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sampling", "skip"),
    [
        ({"top_p": 0.9}, Skip.NOT_EXACT),
        ({"logit_bias": {5: 1.0}, "temperature": 0.0}, Skip.NOT_EXACT),
        ({"top_p": 0.9, "temperature": 0.0}, None),  # a cut leaves a greedy answer as it is
        ({"min_p": 0.1}, None),  # this engine reports as it should under min_p
        ({"temperature": 0.3}, None),
    ],
)
async def test_an_answer_whose_log_probs_are_bent_is_kept_and_not_trained_on(
    gateway: Gateway, sampling: dict[str, Any], skip: Skip | None
) -> None:
    bent = replace(gateway, logprobs_changed_by=frozenset({"top_p", "logit_bias"}))
    turn = await answer(bent, says("hi"), sampling=Sampling(max_tokens=9, **sampling))
    assert (turn.skip, turn.message.content) == (skip, "You said: hi")
    assert (await answer(gateway, says("hi"), sampling=Sampling(max_tokens=9, **sampling))).skip is None


@pytest.mark.parametrize(("kind", "skip"), [("main", None), ("side", Skip.SIDE_TURN)])
async def test_side_turns_are_kept_but_not_trained_on(gateway: Gateway, kind: TurnKind, skip: Skip | None) -> None:
    assert (await answer(gateway, says("hi"), kind=kind)).skip == skip


async def test_a_pin_that_is_not_served_is_a_404(gateway: Gateway) -> None:
    assert (await answer(gateway, says("hi"), model="any@0")).completion.versions == ("v0",)
    with pytest.raises(RequestError) as refusal:
        await begin(gateway, says("hi"), model="any@v7")
    assert refusal.value.status == 404


async def test_a_prompt_beyond_the_window_is_refused_and_holds_no_place(
    gateway: Gateway, model: Path, renderer: Renderer
) -> None:
    small = replace(gateway, engine=ScriptedEngine(model, ScriptedOptions(context_window=64)))
    with pytest.raises(RequestError) as refusal:
        await begin(small, says("word " * 100))
    assert refusal.value.code == "context_length_exceeded"
    assert small.sessions.end("s1") is not None


async def test_the_ids_of_another_model_are_not_spliced_in(gateway: Gateway) -> None:
    first = await answer(gateway, says("hi"))
    own = TokenMemory(gateway.store.get_turn, model_id="tiny#1")
    foreign = TokenMemory(gateway.store.get_turn, model_id="other#2")
    assert await own.get(first.session, 0) is not None
    assert await foreign.get(first.session, 0) is None
    second = await answer(replace(gateway, memory=foreign, model_id="other#2"), says("hi"), first.message, says("on"))
    assert (second.parent, second.model) == (0, "other#2")


async def test_a_refused_request_tells_no_next_state(gateway: Gateway, model: Path, tmp_path: Path) -> None:
    first = await answer(gateway, says("hi"))
    small = replace(gateway, engine=ScriptedEngine(model, ScriptedOptions(context_window=200)))
    with pytest.raises(RequestError):
        await begin(small, says("hi"), first.message, says("word " * 300))
    await answer(gateway, says("hi"), first.message, says("short"))
    state = StoreReader.open(tmp_path / "data").next_state(first.session, 0)
    assert state is not None
    assert state.messages == (says("short"),)


async def test_what_was_told_before_the_engine_refused_stays_told(gateway: Gateway) -> None:
    first = await answer(gateway, says("hi"))
    exchange = await begin(gateway, says("hi"), first.message, says("no"))
    exchange.give_up()
    assert [t.has_next_state for t in gateway.sessions.turns(first.session) if t.index == 0] == [True]


async def test_a_call_whose_arguments_spell_the_closing_tag_is_not_cut(gateway: Gateway, model: Path) -> None:
    call = '<tool_call>\n{"name": "run", "arguments": {"x": "</tool_call> inside"}}\n</tool_call>'
    engine = ScriptedEngine(model, ScriptedOptions(replies=(ScriptedAnswer(match="", reply=call + call),)))
    turn = await answer(
        replace(gateway, engine=engine), says("go"), tools=(Tool(name="run"),), parallel_tool_calls=False
    )
    assert [c.arguments for c in turn.message.tool_calls] == ['{"x": "</tool_call> inside"}']


async def skips(gateway: Gateway, session: str) -> list[Skip | None]:
    outline = await gateway.store.find_session("local", session)
    assert outline is not None
    turns = [await gateway.store.get_turn(session, turn.index) for turn in outline.turns]
    return [turn.skip for turn in turns if turn is not None]


async def test_one_message_may_be_left_out_of_training(gateway: Gateway, tmp_path: Path) -> None:
    first = await answer(gateway, says("hi"))
    so_far = (says("hi"), first.message, says("my secret reaction"))
    second = await answer(gateway, *so_far, no_train="message")
    third = await answer(gateway, *so_far, second.message, says("go on"))
    await answer(gateway, *so_far, second.message, says("go on"), third.message, says("fine"))
    assert await skips(gateway, first.session) == [Skip.OPTED_OUT, Skip.OPTED_OUT, None, None]
    told = StoreReader.open(tmp_path / "data").next_states(first.session)
    assert [(state.index, state.messages[0].content) for state in told] == [(1, "go on"), (2, "fine")]
    assert not _session(tmp_path, first.session).opted_out


async def test_a_message_left_out_says_nothing_about_a_turn_that_was_answered_before(gateway: Gateway) -> None:
    """An edited message after one that was heard: what was said then counts."""
    first = await answer(gateway, says("hi"))
    await answer(gateway, says("hi"), first.message, says("no"))
    await answer(gateway, says("hi"), first.message, says("never mind"), no_train="message")
    assert await skips(gateway, first.session) == [None, None, Skip.OPTED_OUT]


async def test_a_refused_message_that_was_to_be_left_out_closes_nothing(gateway: Gateway, model: Path) -> None:
    first = await answer(gateway, says("hi"))
    small = replace(gateway, engine=ScriptedEngine(model, ScriptedOptions(context_window=200)))
    with pytest.raises(RequestError):
        await begin(small, says("hi"), first.message, says("word " * 300), no_train="message")
    await answer(gateway, says("hi"), first.message, says("fine"))
    assert await skips(gateway, first.session) == [None, None]


async def test_a_session_that_opts_out_is_marked_before_it_is_answered(gateway: Gateway, tmp_path: Path) -> None:
    first = await answer(gateway, says("hi"))
    exchange = await begin(gateway, says("hi"), first.message, says("private"), no_train="session")
    exchange.give_up()
    await gateway.store.mark_delivered(first.session, 0)
    assert _session(tmp_path, first.session).opted_out
    assert await skips(gateway, first.session) == [Skip.OPTED_OUT]


def _session(tmp_path: Path, name: str) -> Session:
    session = StoreReader.open(tmp_path / "data").session(name)
    assert session is not None
    return session


async def test_who_opts_out_late_opts_out_of_what_was_said_before(gateway: Gateway) -> None:
    first = await answer(gateway, says("hi"))
    asked = Request(messages=(says("hi"), first.message, says("private")), sampling=Sampling(max_tokens=9))
    identity = Identity(client="test", session_key=None, kind="main", no_train="session")
    exchange = await gateway.begin(asked, identity, user="local", digest="d", dialect="chat")
    async for _ in exchange.pieces():
        pass
    await exchange.commit()
    for index in (0, 1):
        turn = await gateway.store.get_turn(first.session, index)
        assert turn is not None
        assert turn.skip is Skip.OPTED_OUT


async def test_an_agents_requests_are_answered_by_its_environments_line(gateway: Gateway) -> None:
    asked_for: list[str] = []

    async def live_label(line: str) -> None:
        asked_for.append(line)

    gateway = replace(gateway, live_label=live_label)
    episode = Episode(id="e-1", environment="terminal", task="t", group="g", attempt=0)
    request = Request(messages=(says("hello"),), sampling=Sampling(max_tokens=8))
    for of in (episode, None):
        identity = Identity(client="test", session_key="main", kind="main", episode=of)
        exchange = await gateway.begin(request, identity, user="ann", digest="d", dialect="chat")
        exchange.give_up()
    assert asked_for == ["env:terminal", "ann"]
    assert gateway.sessions.knows("ann", "e-1/main")
    assert gateway.sessions.knows("ann", "main")


class Noting(ScriptedEngine):
    """Notes what it is asked, and what it is to forget."""

    def __init__(self, model: Path) -> None:
        super().__init__(model, ScriptedOptions(tokens_per_s=0))
        self.asked: list[GenerateRequest] = []
        self.forgotten: list[Collection[str]] = []

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        self.asked.append(request)
        async for delta in super().generate(request):
            yield delta

    async def forget_cache(self, salts: Collection[str]) -> None:
        self.forgotten.append(salts)


@pytest.mark.parametrize("shares", [False, True])
async def test_requests_say_whose_they_are_and_what_of_them_is_shared(
    gateway: Gateway, model: Path, shares: bool
) -> None:
    engine = Noting(model)
    noted = replace(gateway, engine=engine, heads=PromptHeads(gateway.renderer) if shares else None)
    system = says("You are brief.", "system")
    first = await answer(noted, system, says("hi"))
    await answer(noted, system, says("hi"), first.message, says("go on"))
    await answer(noted, system, says("something else"), no_train="session")
    salts, shared = ([getattr(one, name) for one in engine.asked] for name in ("cache_salt", "num_shareable"))
    assert salts[0] == salts[1] != salts[2]
    assert all(salts)
    conversations = [one.conversation for one in engine.asked]
    assert conversations[0] == conversations[1] != conversations[2]
    assert all(conversations)
    assert engine.forgotten == [], "a session that was private from the beginning left nothing elsewhere"
    assert [num > 0 for num in shared] == [shares, shares, False]
    if shares:
        assert noted.renderer.decode(engine.asked[1].token_ids[: shared[1]]).endswith(("user", "user\n"))


async def test_attempts_share_how_their_task_begins_and_are_read_by_one_version(gateway: Gateway, model: Path) -> None:
    engine = Noting(model)
    noted = replace(gateway, engine=engine)

    async def act(number: int, *messages: Message) -> Message:
        of = Episode(id=f"e-{number}", environment="terminal", task="t", group="g", attempt=number, group_size=2)
        identity = Identity(client="test", session_key="main", kind="main", episode=of)
        request = Request(messages=messages, sampling=Sampling(max_tokens=4))
        exchange = await noted.begin(request, identity, user=of.id, digest=repr(request), dialect="chat")
        async with aclosing(exchange.pieces()) as pieces:
            async for _ in pieces:
                pass
        await exchange.commit()
        return exchange.answers[0][0]

    said = await act(0, says("hello"))
    await act(0, says("hello"), said, says("go on"))
    await act(1, says("hello"))
    await answer(noted, says("hi"))
    opening, later, other, person = engine.asked
    assert opening.num_shareable == other.num_shareable == len(opening.token_ids)
    assert later.num_shareable == person.num_shareable == 0, "what was said in it is its own"
    assert opening.cache_salt == later.cache_salt != other.cache_salt
    assert [one.exact for one in engine.asked] == [True, True, True, False]


async def test_a_private_session_leaves_nothing_in_the_engines_cache(gateway: Gateway, model: Path) -> None:
    engine = Noting(model)
    noted = replace(gateway, engine=engine)
    first = await answer(noted, says("hi"))
    private = await answer(noted, says("hi"), first.message, says("keep this"), no_train="session")
    before, after = (one.cache_salt for one in engine.asked)
    assert [before in salts for salts in engine.forgotten] == [True], "what was said before it turned private"
    await answer(noted, says("hi"), first.message, says("keep this"), private.message, says("yes"), no_train="session")
    assert len(engine.forgotten) == 1, "it stays until the session ends"
    ended = noted.sessions.end(first.session)
    assert ended is not None
    await noted.end_session(ended)
    assert engine.forgotten[1:] == [{after}]
    assert noted.memory._turns == {}


@pytest.mark.parametrize("size", [60, 20_000], ids=["on the loop", "in a thread"])
async def test_a_text_is_encoded_anew_for_another_user(gateway: Gateway, model: Path, size: int) -> None:
    """Else the time that a prompt takes would tell whether somebody else said the very same."""
    fresh: Any = load_renderer(model, "smollm2-135m-instruct")
    vocabulary, gateway = fresh._vocabulary, replace(gateway, renderer=fresh)
    text, encoded = "the secret " * size, list[str]()
    plain = vocabulary._words.encode

    def noting(told: str) -> Any:
        encoded.append(told)
        return plain(told)

    vocabulary._words.encode = noting
    for user, times in (("ann", 1), ("ann", 1), ("bob", 2), ("bob", 2)):
        asked = Request(messages=(says(text),), sampling=Sampling(max_tokens=4))
        identity = Identity(client="test", session_key=None, kind="main")
        await gateway.begin(asked, identity, user=user, digest=f"{len(encoded)}", dialect="chat")
        assert len([told for told in encoded if text in told]) == times


class Forgetful(ScriptedEngine):
    """Cannot bring back the version that it is asked for."""

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        if request.request_id:
            raise EngineRefused("version v0: /secret/place has another checksum", code="checksum_mismatch")
        async for delta in super().generate(request):
            yield delta


async def test_a_version_that_cannot_be_read_any_more_is_told_of_and_the_client_may_come_again(
    gateway: Gateway, model: Path
) -> None:
    told: list[tuple[str, str]] = []

    async def hear(label: str, reason: str) -> None:
        told.append((label, reason))

    lost = replace(gateway, engine=Forgetful(model, ScriptedOptions(tokens_per_s=0)), on_unreadable=hear)
    with pytest.raises(RequestError, match="try again") as refusal:
        await answer(lost, says("hi"))
    assert (refusal.value.status, refusal.value.code, refusal.value.retry_after_s) == (503, "version_unreadable", 2)
    assert "secret" not in str(refusal.value)
    await lost.background.drain()
    assert told == [("v0", "version v0: /secret/place has another checksum")]


async def test_requests_say_who_takes_turns_and_how_much_he_counts(gateway: Gateway, model: Path) -> None:
    engine = Noting(model)
    noted = replace(gateway, engine=engine, weight_of=lambda user: 2.0 if user == "local" else 1.0)
    await answer(noted, says("hi"))
    await answer(noted, says("something else"), no_train="session")
    first, private = engine.asked
    assert first.party == private.party != "", "who opts out has no second line"
    assert (first.weight, private.weight) == (2.0, 2.0)
