"""Sessions of an agent, as the trainer gets them: one sample for each turn, its prompt all that was visible before.

A turn is new context (a question, a tool's result) and an answer; hints stand behind the context, right before the
answer. With thinking, every answer begins with tokens that are trained and that no later prompt has. Tokens are random:
no pass takes longer or shorter for what they say. Knows no model.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Self

from openclaw_rl.types import Candidate, Sample, VersionSpan, sample_id

FIRST_ID = 100
"""Special tokens are below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long the parts of a session are, in tokens."""

    head: int = 11_000
    """System prompt and tools."""
    context: int = 600
    answer: int = 400
    hint: int = 60
    thinking: int = 0
    num_hints: int = 3

    def tenth(self) -> Self:
        """The same session for a small machine; the number of hints stays."""
        made = {field.name: getattr(self, field.name) // 10 for field in fields(self)}
        return type(self)(**made | {"num_hints": self.num_hints})

    def read(self, turn: int) -> int:
        """Tokens that a pass over turn `turn`, counted from 0, reads: nobody asks what follows the last one."""
        return self.head + turn * (self.context + self.answer) + self.context + self.thinking + self.answer - 1


def session(lengths: Lengths, num_turns: int, *, vocab_size: int, seed: int = 0) -> list[Sample]:
    """The samples of one session, the first turn first; with the same seed a shorter session begins a longer one."""
    draw = random.Random(seed)

    def tokens(size: int) -> tuple[int, ...]:
        return tuple(draw.randrange(FIRST_ID, vocab_size) for _ in range(size))

    visible = tokens(lengths.head)
    samples: list[Sample] = []
    for turn in range(num_turns):
        visible += tokens(lengths.context)
        hints = [tokens(lengths.hint) for _ in range(lengths.num_hints)]
        thinking, answer = tokens(lengths.thinking), tokens(lengths.answer)
        samples.append(_sample(turn, visible, thinking + answer, hints))
        visible += answer
    return samples


def _sample(turn: int, prompt: tuple[int, ...], response: tuple[int, ...], hints: list[tuple[int, ...]]) -> Sample:
    size, reward = len(response), 1.0 - 2.0 * (turn % 2)
    return Sample(
        id=sample_id("bench", turn, "turn"),
        line="bench",
        kind="turn",
        session="bench",
        index=turn,
        prompt_index=turn,
        created_at=0.0,
        prompt_ids=prompt,
        response_ids=response,
        loss_mask=(True,) * size,
        advantages=(reward,) * size,
        logprobs=(-8.0,) * size,
        temperature=1.0,
        on_policy=True,
        reward=reward,
        w_rl=1.0,
        w_opd=1.0 if hints else 0.0,
        candidates=tuple(Candidate(hint="h", num_shared=len(prompt), suffix_ids=hint) for hint in hints),
        version_spans=(VersionSpan("v0", 0, size),),
    )
