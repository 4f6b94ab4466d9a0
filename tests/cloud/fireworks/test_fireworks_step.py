"""A step on Fireworks and the same step here; what it can do, and what is used instead; waits and restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from openclaw_rl.cloud.fireworks.service import FireworksService
from openclaw_rl.cloud.service import Form
from openclaw_rl.errors import CloudError
from openclaw_rl.types import Sampling, WeightsRef
from tests.cloud.fireworks.services import LocalFireworks
from tests.cloud.test_step import ALL, RANK, as_adapter, batch, order_of, tensors, training_of
from tests.factories.torch_trainers import new_trainer

FORM = Form(rank=RANK, seed=3)
WAYS: list[dict[str, Any]] = [
    {},
    {"distillation": "topk", "subset_mode": "student", "weight_decay": 0.1, "clip_grad_norm": 1e6},
    {"distillation": "token", "kl_coef": 0.1, "teacher": "current"},
]


@pytest_asyncio.fixture
async def there(service: LocalFireworks) -> AsyncIterator[FireworksService]:
    made = FireworksService(service.access())
    yield made
    await made.close()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())) or "default")
async def test_a_service_takes_the_step_that_is_taken_here(
    way: dict[str, Any], there: FireworksService, service: LocalFireworks, tiny: Path, tmp_path: Path
) -> None:
    learner = there.learner()
    await learner.begin(None, FORM)
    parent = WeightsRef(uri=await learner.save("begun"), sha256="")
    here = as_adapter(service, parent.uri, tmp_path / "begun")
    given = order_of(*batch(), parent=parent, number=2, **way)
    away = await training_of(there, tmp_path).step(given, tmp_path / "v2.json")
    local = new_trainer(tiny).step(replace(given, parent=here), tmp_path / "v2")
    assert (away.state, local.state) == ("done", "done"), (away.reason, local.reason)
    same = [name for name in local.metrics if name.startswith(("loss/", "sample/", "reward/"))]
    assert "loss/total" in same
    for name in same:
        assert away.metrics[name] == pytest.approx(local.metrics[name], rel=2e-3, abs=2e-5), name
    assert away.weights is not None
    assert local.weights is not None
    moved = tensors(as_adapter(service, away.weights.uri, tmp_path / "moved").folder)
    wanted, begun = tensors(local.weights.folder), tensors(here.folder)
    for name, one in moved.items():
        step = (wanted[name] - begun[name]).norm()
        assert (one - wanted[name]).norm() <= 0.02 * step + 1e-6, name


async def test_what_it_can_do_is_tried(there: FireworksService, service: LocalFireworks) -> None:
    before = len(service.diary("session"))
    found = await there.survey()
    assert replace(found, context_window=ALL.context_window, sdk="") == ALL
    service.order(without=["likely", "ppo", "wide"], most=5)
    found = await there.survey()
    assert found.alternatives == 5
    assert (found.likely_tokens, found.policy_loss, found.wide_targets) == (False, False, False)
    assert found.prompt_logprobs
    ended = {one["session"] for one in service.diary("end")}
    begun = {one["session"] for one in service.diary("session")[before:]}
    assert begun
    assert begun <= ended, "each session gives its place back"


async def test_a_version_is_waited_for_while_it_is_loaded(there: FireworksService, service: LocalFireworks) -> None:
    learner, sampler = there.learner(), there.sampler()
    await learner.begin(None, FORM)
    uri = await learner.save("v1-loading")
    service.order(loading=3)
    before = len(service.diary("loading"))
    await sampler.open(uri)
    assert len(service.diary("loading")) - before == 3
    assert (await sampler.read(uri, (1, 2, 3), last=2)).logprobs.shape == (2,)
    with pytest.raises(CloudError, match="no state at") as missing:
        await sampler.open(uri.replace("v1-loading", "v9"))
    assert missing.value.kind == "missing"


async def test_an_answer_ends_with_the_token_that_ends_it(there: FireworksService) -> None:
    sampler = there.sampler()
    how = Sampling(max_tokens=6, temperature=0.7, seed=5)
    whole = await sampler.draw(None, (1, 2, 3), how, stop_ids=())
    assert (len(whole.token_ids), whole.finish_reason) == (6, "length")
    stop = whole.token_ids[3]
    cut = await sampler.draw(None, (1, 2, 3), how, stop_ids=(stop,))
    at = whole.token_ids.index(stop) + 1
    assert (cut.token_ids, cut.finish_reason) == (whole.token_ids[:at], "stop")
    assert cut.used.sample == 6, "what was drawn is paid"


async def test_a_service_that_was_started_again_is_asked_in_a_new_session(
    there: FireworksService, service: LocalFireworks
) -> None:
    learner, sampler = there.learner(), there.sampler()
    await learner.begin(None, FORM)
    uri = await learner.save("v1-again")
    before = await sampler.read(uri, (1, 2, 3, 4), last=2)
    service.kill()
    service.start()
    after = await sampler.read(uri, (1, 2, 3, 4), last=2)
    assert np.allclose(before.logprobs, after.logprobs, atol=1e-5)


async def test_a_service_that_is_away_is_not_waited_for_without_end(service: LocalFireworks) -> None:
    sampler = FireworksService(service.access(patience_s=3.0)).sampler()
    await sampler.open(None)
    service.order(down=True)
    with pytest.raises(CloudError, match="has not answered for 3 s") as away:
        await sampler.read(None, (1, 2, 3), last=2)
    assert away.value.kind == "away"
