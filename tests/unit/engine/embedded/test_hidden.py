"""Hidden states of the base: those that the network itself holds, whatever is live and whoever else is served."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from openclaw_rl.engine.embedded.runner import NetworkRunner
from openclaw_rl.engine.embedded.scheduler import HiddenJob
from openclaw_rl.errors import EngineRefused
from openclaw_rl.model.network import DenseLinear, Network
from openclaw_rl.types import PERSON, Hidden, HiddenRequest
from tests.unit.engine.embedded import rig
from tests.unit.engine.embedded.test_engine import make, publication
from tests.unit.engine.prompts import ask, whole

SEQUENCES = ((3, 1, 4, 1, 5, 9), (2, 7), tuple(range(1, 40)))


def wanted(layer: int) -> Tensor:
    """The last rows of a network that has only so many blocks, normed; computed one sequence at a time."""
    full = rig.network(0)
    itself = DenseLinear(torch.eye(full.arch.hidden_size))
    weights = replace(full.weights, layers=full.weights.layers[:layer], head=itself)
    short = replace(rig.weights(), runner=NetworkRunner(Network(replace(full.arch, num_layers=layer), weights)))
    return torch.stack([rig.plain_logits(ids, short)[-1] for ids in SEQUENCES])


def normed(found: tuple[Hidden, ...]) -> Tensor:
    x = torch.tensor([one.values for one in found])
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + rig.ARCHITECTURE.rms_eps)


@pytest.mark.parametrize("layer", [1, 2])
async def test_they_are_those_behind_the_named_block(layer: int) -> None:
    engine = make()
    found = await engine.hidden(HiddenRequest(request_id="h", sequences=SEQUENCES, layer=layer))
    torch.testing.assert_close(normed(found), wanted(layer), atol=1e-5, rtol=1e-4)
    await engine.close()


async def test_they_are_the_bases_own_whatever_is_live() -> None:
    engine, request = make(), HiddenRequest(request_id="h", sequences=SEQUENCES, layer=2)
    before = await engine.hidden(request)
    await engine.publish(publication("v1"))
    assert await engine.hidden(request) == before
    await engine.close()


async def test_people_are_answered_beside_them_with_the_same_tokens() -> None:
    engine = make()
    alone = await whole(engine, ask([1, 2, 3], max_tokens=20, temperature=0.0))
    request = HiddenRequest(request_id="h", sequences=SEQUENCES * 8, layer=1)
    beside, found = await asyncio.gather(
        whole(engine, ask([1, 2, 3], max_tokens=20, temperature=0.0)), engine.hidden(request)
    )
    assert (beside.token_ids, len(found)) == (alone.token_ids, 24)
    await engine.close()


async def test_a_layer_or_a_token_that_the_model_does_not_have_is_refused() -> None:
    engine = make()
    with pytest.raises(EngineRefused, match=r"layer must lie in \[1, 2\]"):
        await engine.hidden(HiddenRequest(request_id="h", sequences=((1,),), layer=3))
    with pytest.raises(EngineRefused, match="sequence 0"):
        await engine.hidden(HiddenRequest(request_id="h", sequences=((rig.VOCAB,),), layer=1))
    await engine.close()


def test_beside_a_person_only_some_steps_read_one() -> None:
    scheduler = rig.scheduler(prefill_chunk=512)
    person = rig.answer([1, 2, 3], max_tokens=200, priority=PERSON)
    base = rig.weights()
    jobs = [HiddenJob((1, 2), 1, base, 1) for _ in range(4)]
    for job in (person, *jobs):
        scheduler.submit(job)
    for _ in range(16):
        scheduler.step()
    assert [job.over for job in jobs] == [True, True, False, False]
    scheduler.cancel(person)
    scheduler.step()
    assert all(job.over for job in jobs)
