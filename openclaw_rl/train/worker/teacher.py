"""Hinted prompts -> what the teacher would have said at every token of the response. Never with gradient.

base      the model before it learned anything
current   what is being trained, as it stands at the start of the step
ema       a slow average of it
path      another checkpoint with the same tokenizer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from openclaw_rl.train.objective.rows import Rows
from openclaw_rl.train.passes.reader import Reader
from openclaw_rl.train.passes.sequences import IDLE, Sequenced, in_parts
from openclaw_rl.train.worker.crew import ALONE, Crew


class Teacher:
    """Weights that are asked, at a temperature of their own."""

    def __init__(self, reader: Reader, *, temperature: float = 1.0) -> None:
        self.reader = reader
        self.temperature = temperature


@dataclass(frozen=True, slots=True)
class HintedQuestion:
    """What `teacher` says at each token of a response that was sampled at `temperature`."""

    teacher: Teacher
    sequence: Sequenced
    temperature: float


@torch.no_grad()
def ask(
    questions: Sequence[HintedQuestion], readers: Sequence[Reader], *, max_tokens: int, crew: Crew = ALONE
) -> list[Rows]:
    """One answer for each question. Hints of one conversation share what they begin with, in passes of so many tokens.

    `readers` are all that may be asked, by any member of the crew. Logits are divided by the sample's temperature and
    by the teacher's.
    """
    answers: dict[int, Rows] = {}
    for reader in {id(one): one for one in readers}.values():
        asked = [at for at, one in enumerate(questions) if one.teacher.reader is reader]
        parts = in_parts(asked, lambda at: (questions[at].sequence,), reader.counter, max_tokens=max_tokens)
        for part in crew.level(parts):
            readings = reader.read([questions[at].sequence for at in part or ()] or [IDLE])
            for at, reading in zip(part or (), readings, strict=part is not None):
                answers[at] = reading.rows(questions[at].temperature * questions[at].teacher.temperature)
    return [answers[at] for at in range(len(questions))]
