"""Hinted lessons -> the same requests, answered anew by the version that is about to learn from them.

A hint says where its teacher would have gone another way. That is best said about answers which the model would give
now: of the lesson that just came in there is one, and those before it were answered by older versions. So the requests
are asked again, as often as a step has room for, and no answer is longer than the one that was found fault with.
Nothing of it is stored: whoever takes the step again asks again, and the same seeds get the same answers.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Sequence
from dataclasses import replace

from openclaw_rl.protocols import Engine
from openclaw_rl.types import BACKGROUND, GenerateRequest, Sample, Sampling, VersionSpan


class Rehearsal:
    """Asks one engine for at most `num` answers a step."""

    def __init__(self, engine: Engine, *, num: int, stop_token_ids: Sequence[int]) -> None:
        self._engine = engine
        self._num = num
        self._stop_token_ids = tuple(stop_token_ids)

    async def __call__(self, lessons: Sequence[Sample], version: str, *, seed: str) -> list[Sample]:
        """Samples for a step from `version`; none where nothing has a hint, or the engine has not got that version."""
        hinted = [one for one in lessons if one.kind == "turn" and any(way.hint for way in one.candidates)]
        if not hinted or version not in (await self._engine.state()).versions:
            return []
        asked = [(hinted[at % len(hinted)], at) for at in range(self._num)]
        return list(await asyncio.gather(*(self._answer(one, at, version, f"{seed} {at}") for one, at in asked)))

    async def _answer(self, lesson: Sample, at: int, version: str, seed: str) -> Sample:
        request = GenerateRequest(
            request_id=f"rehearsal-{secrets.token_hex(6)}",
            token_ids=lesson.prompt_ids,
            sampling=Sampling(
                max_tokens=len(lesson.response_ids),
                temperature=lesson.temperature,
                seed=random.Random(seed).getrandbits(31),
            ),
            stop_token_ids=self._stop_token_ids,
            version=version,
            priority=BACKGROUND,
            exact=True,
        )
        deltas = [delta async for delta in self._engine.generate(request)]
        said = tuple(token for delta in deltas for token in delta.token_ids)
        return replace(
            lesson,
            id=f"{lesson.id}+rehearsal {at}",
            kind="rehearsal",
            response_ids=said,
            loss_mask=(True,) * len(said),
            advantages=(0.0,) * len(said),
            logprobs=tuple(value for delta in deltas for value in delta.logprobs),
            on_policy=True,
            reward=0.0,
            w_rl=0.0,
            version_spans=(VersionSpan(version, 0, len(said)),),
        )
