"""The engine over a sampler: names of versions, what is refused, what passes, what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openclaw_rl.cloud.bill import Prices, Till
from openclaw_rl.cloud.service import Abilities, DrawnAnswer, Ints, SaidOf, Used
from openclaw_rl.engine.cloud.engine import CloudEngine, FarModel
from openclaw_rl.errors import CloudError, EngineRefused
from openclaw_rl.types import Delta, GenerateRequest, Publication, Sampling, ScoreRequest, WeightsRef

SEEN = Abilities(
    context_window=16,
    prompt_logprobs=True,
    likely_tokens=True,
    chosen_tokens=True,
    wide_targets=True,
    policy_loss=True,
)
ONE = Publication(version="v1", weights=WeightsRef(uri="tinker://run/sampler_weights/v1", sha256=""))


class Sampler:
    """Says which weights it was asked with, as a token; `trouble` comes instead."""

    def __init__(self) -> None:
        self.names: list[str | None] = [None]
        self.trouble: CloudError | None = None
        self.let: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def open(self, weights: str | None) -> None:
        if self.trouble:
            raise self.trouble
        self.names.append(weights)

    async def draw(
        self, weights: str | None, prompt_ids: Sequence[int], how: Sampling, *, stop_ids: Sequence[int]
    ) -> DrawnAnswer:
        await self.may_answer.wait()
        if self.trouble:
            raise self.trouble
        ids = (self.names.index(weights),) * how.max_tokens
        used = Used(prefill=len(prompt_ids), sample=len(ids))
        return DrawnAnswer(token_ids=ids, logprobs=(-1.0,) * len(ids), finish_reason="length", used=used)

    async def read(
        self, weights: str | None, ids: Sequence[int], *, last: int, likely: int = 0, chosen_RK: Ints | None = None
    ) -> SaidOf:
        said = np.full(last, -float(self.names.index(weights)), dtype=np.float32)
        return SaidOf(logprobs=said, used=Used(prefill=len(ids), sample=1))

    def let_go(self, weights: str) -> None:
        self.let.append(weights)

    async def close(self) -> None: ...


def made(sampler: Sampler, folder: Path) -> CloudEngine:
    async def close() -> None: ...

    model = FarModel(name="far", vocab_size=50, stop_ids=(2,))
    till = Till(folder, Prices())
    return CloudEngine(sampler, SEEN, model, place="Far", till=till, max_active=4, close_service=close)


async def said(engine: CloudEngine, **changes: Any) -> Delta:
    sampling = Sampling(**{"max_tokens": 3, **changes})
    request = GenerateRequest(request_id="r", token_ids=(5, 6), sampling=sampling)
    (delta,) = [delta async for delta in engine.generate(request)]
    return delta


async def test_what_runs_keeps_the_version_it_began_with(tmp_path: Path) -> None:
    sampler = Sampler()
    engine = made(sampler, tmp_path)
    assert (await said(engine)).version == "v0"
    await engine.publish(ONE)
    sampler.may_answer.clear()
    running = asyncio.create_task(said(engine))
    await asyncio.sleep(0)
    await engine.publish(Publication(version="v0"))
    await engine.retire("v1")
    assert sampler.let == []
    sampler.may_answer.set()
    delta = await running
    assert (delta.version, delta.token_ids, delta.finish_reason) == ("v1", (1, 1, 1), "length")
    assert sampler.let == ["tinker://run/sampler_weights/v1"], "with the last request that asks it"
    assert (await engine.state()).versions == ("v0",)


async def test_a_label_names_the_same_weights_for_ever(tmp_path: Path) -> None:
    engine = made(Sampler(), tmp_path)
    await engine.publish(ONE)
    await engine.publish(ONE)
    other = Publication(version="v1", weights=WeightsRef(uri="tinker://run/sampler_weights/other", sha256=""))
    with pytest.raises(EngineRefused, match="cannot become") as refusal:
        await engine.publish(other)
    assert refusal.value.status == 409
    here = Publication(version="v2", weights=WeightsRef.of_folder(tmp_path, "0" * 64))
    with pytest.raises(EngineRefused, match="serves what it trained itself"):
        await engine.publish(here)


async def test_trouble_that_passes_is_no_refusal(tmp_path: Path) -> None:
    sampler = Sampler()
    engine = made(sampler, tmp_path)
    for kind, status in (("away", 503), ("busy", 503), ("billing", 503), ("missing", 410), ("refused", 400)):
        sampler.trouble = CloudError("no", kind=kind)
        with pytest.raises(EngineRefused) as refusal:
            await said(engine)
        assert refusal.value.status == status
        with pytest.raises(EngineRefused):
            await engine.publish(ONE)
        assert (await engine.state()).versions == ("v0",), "what could not be opened is not there"


async def test_what_a_service_does_not_know_is_said(tmp_path: Path) -> None:
    engine = made(Sampler(), tmp_path)
    with pytest.raises(EngineRefused, match="Far does not know presence_penalty"):
        await said(engine, presence_penalty=0.5)
    assert len((await said(engine, max_tokens=100)).token_ids) == SEEN.context_window - 2
    bent = ScoreRequest(request_id="s", sequences=((1, 2, 3),), starts=(1,), temperature=0.5)
    with pytest.raises(EngineRefused, match="temperature 1 only"):
        await engine.score(bent)


async def test_every_request_is_on_the_bill(tmp_path: Path) -> None:
    engine = made(Sampler(), tmp_path)
    await engine.publish(ONE)
    await said(engine)
    (scored,) = await engine.score(ScoreRequest(request_id="s", sequences=((1, 2, 3),), starts=(2,), version="v1"))
    assert scored.logprobs == (-1.0,)
    assert Till(tmp_path, Prices()).bill().total == Used(prefill=2 + 3, sample=3 + 1)
