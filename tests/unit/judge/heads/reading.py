"""Hidden states without a model: each is made of the reaction's own words, so that heads can learn something."""

from __future__ import annotations

import numpy as np

from openclaw_rl.errors import EngineUnavailable
from openclaw_rl.judge.heads import HeadsJudge
from openclaw_rl.judge.heads.examples import EXAMPLES, load
from openclaw_rl.judge.heads.fit import mixed
from openclaw_rl.judge.heads.grams import features
from openclaw_rl.judge.heads.model import GramHeads, Heads, HiddenHeads
from openclaw_rl.judge.heads.regression import Floats
from openclaw_rl.judge.heads.states import States
from openclaw_rl.types import Hidden, HiddenRequest

WIDTH = 64


def state(text: str) -> Floats:
    """Where its n-grams fall among few places."""
    said = text.rpartition("User: ")[2]
    return np.bincount(features(said) % WIDTH, minlength=WIDTH) / 10.0


class Bytes:
    """The only thing that is asked of a renderer here."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


class Reader:
    """An engine that reads states; `down` makes it fail, `deaf` hear nothing."""

    def __init__(self) -> None:
        self.requests: list[HiddenRequest] = []
        self.down = self.deaf = False

    async def hidden(self, request: HiddenRequest) -> tuple[Hidden, ...]:
        self.requests.append(request)
        if self.down:
            raise EngineUnavailable("the engine is not there")
        texts = ["" if self.deaf else bytes(ids).decode() for ids in request.sequences]
        return tuple(Hidden(values=tuple(state(text))) for text in texts)


def states_of(reader: Reader) -> States:
    return States(reader, Bytes(), layer=1)  # type: ignore[arg-type]


def fitted() -> Heads:
    """Fitted on the shipped examples over the states above."""
    examples = mixed(load(EXAMPLES))
    hidden_NH = np.array([state(one.reaction.prompt) for one in examples])
    return Heads(GramHeads.shipped(), HiddenHeads.fitted(examples, hidden_NH, layer=1))


def judge_with(heads: Heads, reader: Reader) -> HeadsJudge:
    async def prepare() -> tuple[Heads, States]:
        return heads, states_of(reader)

    return HeadsJudge(prepare)
