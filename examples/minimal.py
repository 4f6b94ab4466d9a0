"""The newcomer's door: two turns of one conversation, from words to rows on disk, in one process and without HTTP.

    .venv/bin/python examples/minimal.py

The parts are those that `openclaw_rl/pipeline.py` wires together, in the order of the data. Only the engine is another
one: it follows a script instead of a model, so that every run prints the same and takes no time. Its tokenizer is the
embedded model's own, which `make setup` has fetched.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from openclaw_rl.config import load_config
from openclaw_rl.engine.scripted import Reply, ScriptedEngine, ScriptedOptions
from openclaw_rl.gateway.exchange import Background, Gateway
from openclaw_rl.gateway.identify import Identity
from openclaw_rl.gateway.memory import TokenMemory
from openclaw_rl.gateway.sessions import Sessions
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import Renderer
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import LOCAL_USER, Message, Request, Sampling, TextDelta, Turn

SCRIPT = ScriptedOptions(
    replies=(
        Reply(match="gravity", reply="Gravity is a force by which all things that have mass attract one another."),
        Reply(match="[Ss]horter", reply="Things attract each other."),
    )
)

MODEL_ID = "scripted:smollm2-135m-instruct"


async def main() -> None:
    heading("1. The parts")
    model = resolve_model(load_config().config.model)
    renderer = load_renderer(model.path, model.name)  # words <-> token ids, in the form this model was trained on
    engine = ScriptedEngine(model.tokenizer_path, SCRIPT)  # token ids in, token ids and log-probs out
    with tempfile.TemporaryDirectory() as folder:
        async with await SqliteStore.open(Path(folder)) as store:  # what must survive
            numbers = itertools.count(1)
            sessions = Sessions(timeout_s=3600, new_id=lambda: f"s-{next(numbers)}")  # who continues what
            gateway = Gateway(
                engine=engine,
                renderer=renderer,
                store=store,
                sessions=sessions,
                memory=TokenMemory(store.get_turn, model_id=MODEL_ID),  # the ids of recent turns, to spare a read
                model_id=MODEL_ID,
                background=Background(),
            )
            print(f"tokenizer of {model.name}, a scripted engine, a store in a temporary folder")
            await converse(gateway)
            await gateway.background.drain()
        read_back(Path(folder), renderer)


async def converse(gateway: Gateway) -> None:
    """Two requests, as any chat client sends them: the second repeats the whole history and names no session."""
    heading("2. The first request becomes a turn")
    question = Message(role="user", content="What is gravity?")
    first = await answer(gateway, [question])

    heading("3. The second request is recognised, extends the first and tells what followed it")
    reaction = Message(role="user", content="Shorter, please!")
    await answer(gateway, [question, first, reaction])


async def answer(gateway: Gateway, messages: Sequence[Message]) -> Message:
    """What `gateway/app.py` and `gateway/serving.py` do for one HTTP request, without the HTTP."""
    request = Request(messages=tuple(messages), sampling=Sampling(max_tokens=64, temperature=0.7))
    digest = hashlib.blake2b(repr(request).encode(), digest_size=16).hexdigest()  # tells a retry from a new request
    identity = Identity(client="examples/minimal.py", session_key=None, kind="main")  # `identify` reads it off headers

    # Place the request in a session and render its prompt: the parent's exact ids, extended by what is new.
    exchange = await gateway.begin(request, identity, user=LOCAL_USER, digest=digest, dialect="none")
    (turn_id,) = exchange.turn_ids
    print(f"turn {turn_id}, sampled by version {exchange.version}, {exchange.num_prompt_tokens} prompt tokens")

    # Sample. A client sees the words of each piece; the ids and log-probs beside them are what training needs.
    async with aclosing(exchange.pieces()) as pieces:
        async for _, piece in pieces:
            words = "".join(event.text for event in piece.events if isinstance(event, TextDelta))
            print(f"  {words!r:<46} {show_ids(piece.token_ids)}")

    # The law of the gateway: on disk first, and only then may the client see the end of its answer.
    await exchange.commit()
    await exchange.delivered()
    ((message, _),) = exchange.answers
    return message


def read_back(folder: Path, renderer: Renderer) -> None:
    """What `openclaw-rl sessions` and `inspect` do: open the store read-only and look."""
    heading("4. Read back from disk")
    reader = StoreReader.open(folder)
    (summary,) = reader.sessions()
    first, second = reader.turns(summary.session.id)
    print(f"session {summary.session.id}: {summary.main_turns} main turns, {summary.tokens} tokens sampled")
    for turn in (first, second):
        show_turn(turn, renderer)

    before = first.prompt_ids + first.completion.token_ids
    extends = second.prompt_ids[: len(before)] == before
    print(f"\nThe second prompt starts with the {len(before)} ids of the first turn, id for id: {extends}.")
    print("They were not tokenised again. Only this is new (control tokens are not shown):")
    print(f"  {renderer.decode(second.prompt_ids[len(before) :])!r}")

    state = reader.next_state(first.session, first.index)
    assert state is not None, "the second request told what followed the first turn"
    print(f"\nThe next state of {first.id}, from which a judge will read what the person thought of the answer:")
    print(f"  {state.messages[0].role}: {state.messages[0].content}")
    print(f"The next state of {second.id}: {reader.next_state(second.session, second.index)} (nothing followed yet)")


def show_turn(turn: Turn, renderer: Renderer) -> None:
    completion = turn.completion
    spans = ", ".join(f"{span.version} [{span.start}, {span.end})" for span in completion.version_spans)
    print(f"\nturn {turn.id}, parent {turn.parent}, {turn.kind}, finished by {completion.finish_reason}")
    print(f"  prompt_ids  {show_ids(turn.prompt_ids)}")
    print(f"  token_ids   {show_ids(completion.token_ids)}")
    print(f"  logprobs    {' '.join(f'{logprob:.3f}' for logprob in completion.logprobs[:6])} …")
    print(f"  sampled by  {spans}")
    print(f"  decoded     {renderer.decode(completion.token_ids)!r}")
    print(f"  delivered   {turn.message.content!r}")


def show_ids(ids: Sequence[int]) -> str:
    shown = " ".join(str(token) for token in ids[:6])
    return f"{shown} … ({len(ids)} ids)" if len(ids) > 6 else shown


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


if __name__ == "__main__":
    asyncio.run(main())
