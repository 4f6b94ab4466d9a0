"""One question to some versions of a line, for those who compare them: nothing of it is kept, and nobody learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.release.gate.probes import PROBES, Probe, Prober
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.types import Message

QUESTIONS = PROBES
"""The fixed ones: those that the gate asks too."""

_MAX_TOKENS = 200


class AskVersions(Protocol):
    """The answers of these versions of a line, by their numbers, to one question; `OpenClawError` says why not."""

    async def __call__(self, line: str, numbers: Sequence[int], question: str) -> list[str]: ...


class VersionAsking:
    """Greedy answers, as the gate hears them."""

    def __init__(self, engine: Engine, renderer: Renderer, releaser: Releaser) -> None:
        self._prober = Prober(engine, renderer, (), max_tokens=_MAX_TOKENS)
        self._renderer = renderer
        self._releaser = releaser

    async def __call__(self, line: str, numbers: Sequence[int], question: str) -> list[str]:
        messages = [Message(role="user", content=question)]
        probe = Probe(text=question, prompt_ids=tuple(self._renderer.render(messages, (), {})))
        told = []
        for number in numbers:
            async with self._releaser.loaded(line, number) as label:
                (answer,) = await self._prober.ask([probe], label)
            told.append(answer.text)
        return told
