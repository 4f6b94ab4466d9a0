"""A process that credits a conversation, to be killed: `python -m tests.unit.credit.child DIR`.

The first run puts the conversation and its judgements there; every run credits what is left.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Turn
from tests.factories.conversations import (
    HINT,
    MODEL,
    failed,
    judge,
    make_child,
    make_turn,
    put_conversation,
    scored,
    settings,
)
from tests.factories.turns import SESSION
from tests.tiny import build_tiny_tokenizer


def conversation(num_turns: int) -> list[Turn]:
    """Turns that continue each other; each but the last was followed by the next one's request."""
    turns = [make_turn()]
    while len(turns) < num_turns:
        turns.append(make_child(turns[-1], f"And number {len(turns)}?"))
    return turns


async def main(directory: Path) -> None:
    renderer = load_renderer(build_tiny_tokenizer(directory / "tokenizer"), "tiny")
    async with await SqliteStore.open(directory) as store:
        if await store.lessons.get_session(SESSION) is None:
            await put_conversation(store, conversation(7))
            verdicts = {0: scored(1), 1: scored(-1, HINT), 2: scored(1), 3: failed(), 4: scored(0), 5: scored(-1)}
            await judge(store, verdicts)
        await store.lessons.release_earlier()
        loop = CreditLoop(store.lessons, renderer, settings(), MODEL)
        while await loop.work():
            pass


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
