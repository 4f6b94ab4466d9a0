"""A data directory as a server over the tiny model leaves it: turns token by token, each answered with a correction."""

from __future__ import annotations

import random
from pathlib import Path

from openclaw_rl.config import load_config
from openclaw_rl.model.files import resolve_model
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import LOCAL_USER, Completion, Message, NextState, Sampling, Session, Turn, VersionSpan
from openclaw_rl.wiring.foundation import model_id_of
from tests.tiny import VOCAB_SIZE

SAID = Message(role="user", content="no, shorter please")


def make_turns(model: Path, count: int, *, session: str = "s-1", version: str = "v0") -> list[Turn]:
    """Turns of one session that do not continue each other."""
    config = load_config(overrides=(f"model.name={model}",), env={}).config
    files = resolve_model(config.model)
    renderer, drawn = load_renderer(files.path, files.name, files.tokenizer_path), random.Random(session)
    turns = []
    for index in range(count):
        asked = (Message(role="user", content=f"tell me of rain, part {index}"),)
        answer = tuple(drawn.randrange(3, VOCAB_SIZE) for _ in range(6 + index))
        turns.append(
            Turn(
                session=session,
                index=index,
                parent=None,
                kind="main",
                created_at=100.0 + index,
                finished_at=100.5 + index,
                dialect="chat",
                model=model_id_of(config, files),
                messages=asked,
                tools=(),
                sampling=Sampling(max_tokens=32, temperature=0.7),
                prompt_ids=tuple(renderer.render(list(asked), (), {})),
                completion=Completion(
                    token_ids=answer,
                    logprobs=tuple(-0.1 - drawn.random() for _ in answer),
                    finish_reason="stop",
                    version_spans=(VersionSpan(version, 0, len(answer)),),
                ),
                message=Message(role="assistant", content=f"rain is water {index}"),
                request_digest=f"{index:032x}",
                chain=f"{index:064x}",
            )
        )
    return turns


async def record(data_dir: Path, turns: list[Turn]) -> None:
    """Each turn is followed by the same complaint; nothing is judged yet."""
    async with await SqliteStore.open(data_dir) as store:
        session = turns[0].session
        await store.put_session(
            Session(id=session, user=LOCAL_USER, client="curl", opened_at=100.0, last_seen_at=200.0)
        )
        for turn in turns:
            await store.put_turn(turn)
            state = NextState(session=session, index=turn.index, messages=(SAID,), arrived_at=110.0)
            await store.put_next_state(state)
