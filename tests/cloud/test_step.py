"""A step on a service and the same step here: the same losses, the same gradient, the same weights afterwards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from safetensors.torch import load_file, save_file

from openclaw_rl.cloud.bill import Prices, Till
from openclaw_rl.cloud.service import Abilities, Form, Move, Service
from openclaw_rl.cloud.tinker.service import TinkerService
from openclaw_rl.errors import CloudError
from openclaw_rl.train.cloud.training import CloudTraining
from openclaw_rl.types import Sample, ScoreOrder, StepOrder, StepReport, WeightsRef
from tests.cloud.services import LocalService
from tests.factories.orders import sample, settings
from tests.factories.torch_trainers import new_trainer

RANK = 4
ALL = Abilities(
    context_window=256,
    prompt_logprobs=True,
    likely_tokens=True,
    chosen_tokens=True,
    wide_targets=True,
    policy_loss=True,
)


@pytest_asyncio.fixture
async def there(service: LocalService) -> AsyncIterator[TinkerService]:
    made = TinkerService(service.access())
    yield made
    await made.close()


def training_of(there: Service, folder: Path, abilities: Abilities = ALL) -> CloudTraining:
    prices = Prices(prefill=1.0, sample=2.0, train=3.0)
    return CloudTraining(there, abilities, till=Till(folder / "bill", prices), prices=prices)


def order_of(*samples: Sample, parent: WeightsRef | None, number: int = 1, **changes: Any) -> StepOrder:
    values = {"lora_rank": RANK, "lora_alpha": 32.0, "num_epochs": 3, "logprob_temperature": 1.0, **changes}
    return StepOrder(
        line="local",
        number=number,
        parent=parent,
        parent_number=number - 1,
        seed=0,
        settings=settings(**values),
        samples=samples,
    )


def as_adapter(service: LocalService, uri: str, folder: Path) -> WeightsRef:
    """A snapshot of the service as a PEFT folder, which the trainer here begins from."""
    found = load_file(service.folder_of(uri) / "weights.safetensors")
    names = {"down": "lora_A", "up": "lora_B"}
    written = {
        f"base_model.model.{name.rpartition('.')[0]}.{names[name.rpartition('.')[2]]}.weight": one.contiguous()
        for name, one in found.items()
    }
    weights = folder / "weights"
    weights.mkdir(parents=True)
    save_file(written, weights / "adapter_model.safetensors", metadata={"format": "pt"})
    targets = sorted({name.rpartition(".")[0].rpartition(".")[2] for name in found})
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 32.0, "target_modules": targets}
    (weights / "adapter_config.json").write_text(json.dumps(config))
    return WeightsRef.of_folder(weights, "")


def tensors(folder: Path | None) -> dict[str, torch.Tensor]:
    assert folder is not None
    return load_file(folder / "adapter_model.safetensors")


def kept(service: LocalService, report: StepReport) -> dict[str, torch.Tensor]:
    """The weights of a snapshot, where the service has them."""
    assert report.weights is not None
    return load_file(service.folder_of(report.weights.uri) / "weights.safetensors")


def batch(**changes: Any) -> list[Sample]:
    """Lessons of every kind: with a score, with hints, with both, an answer that the teacher itself gave."""
    both, hinted = sample(0, **changes), replace(sample(1, **changes), w_rl=0.0)
    scored = sample(2, num_hints=0, advantage=0.7, **changes)
    shown = replace(sample(3, num_hints=1, **changes), kind="demonstration", w_rl=0.0, logprobs=None, on_policy=False)
    return [both, hinted, scored, shown]


WAYS: list[dict[str, Any]] = [
    {},
    {"distillation": "topk", "subset_mode": "student"},
    {"distillation": "topk", "subset_mode": "union", "hint_selection": "token_optimal"},
    {"distillation": "reverse_kl", "subset_mode": "overlap"},
    {"distillation": "token", "kl_coef": 0.1},
    {"sequence_ratio": True, "loss_per_token": True, "importance_clip": None},
    {"teacher": "current", "weight_decay": 0.1, "clip_grad_norm": 1e6},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())) or "default")
async def test_a_service_takes_the_step_that_is_taken_here(
    way: dict[str, Any], there: TinkerService, service: LocalService, tiny: Path, tmp_path: Path
) -> None:
    learner = there.learner()
    await learner.begin(None, Form(rank=RANK, seed=3))
    parent = WeightsRef(uri=await learner.save("begun"), sha256="")
    here = as_adapter(service, parent.uri, tmp_path / "begun")
    given = order_of(*batch(), parent=parent, number=2, **way)
    before = len(service.diary("backward"))
    away = await training_of(there, tmp_path).step(given, tmp_path / "v2.json")
    local = new_trainer(tiny).step(replace(given, parent=here), tmp_path / "v2")
    assert (away.state, local.state) == ("done", "done"), (away.reason, local.reason)
    same = [name for name in local.metrics if name.startswith(("loss/", "sample/", "reward/", "gradient/"))]
    assert {"loss/total", "gradient/norm"} < set(same)
    for name in same:
        assert away.metrics[name] == pytest.approx(local.metrics[name], rel=2e-3, abs=2e-5), name
    losses = {one["loss"] for one in service.diary("backward")[before:]}
    alone = not {"kl_coef", "sequence_ratio"} & set(way)
    assert losses == ({"cross_entropy", "ppo"} if alone else {"cross_entropy"}), "scores alone are the service's own"
    assert away.weights is not None
    assert local.weights is not None
    moved = tensors(as_adapter(service, away.weights.uri, tmp_path / "moved").folder)
    wanted = tensors(local.weights.folder)
    begun = tensors(here.folder)
    for name, there_moved in moved.items():
        step = (wanted[name] - begun[name]).norm()
        assert (there_moved - wanted[name]).norm() < 0.02 * step + 1e-6, name


async def test_a_second_step_goes_on_from_the_optimiser_of_the_first(
    there: TinkerService, service: LocalService, tmp_path: Path
) -> None:
    """In the run that is open, and in another process that begins from the snapshot: the same weights."""
    training = training_of(there, tmp_path)
    first = await training.step(order_of(*batch(), parent=None), tmp_path / "v1.json")
    second = order_of(*batch(), parent=first.weights, number=2)
    open_run = await training.step(second, tmp_path / "v2.json")
    anew = await training_of(there, tmp_path).step(second, tmp_path / "v2-again.json")
    assert open_run.weights is not None
    assert anew.weights is not None
    one, other = kept(service, open_run), kept(service, anew)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert open_run.weights.uri != anew.weights.uri


async def test_a_step_that_breaks_in_the_middle_is_taken_again_from_its_parent(
    there: TinkerService, service: LocalService, tmp_path: Path
) -> None:
    training = training_of(there, tmp_path)
    first = await training.step(order_of(*batch(), parent=None), tmp_path / "v1.json")
    second = order_of(*batch(), parent=first.weights, number=2)
    whole = await training_of(there, tmp_path).step(second, tmp_path / "whole.json")
    service.order(fails={"optim_step": "a GPU died"})
    with pytest.raises(CloudError, match="a GPU died"):
        await training.step(second, tmp_path / "v2.json")
    again = await training.step(second, tmp_path / "v2.json")
    one, other = kept(service, whole), kept(service, again)
    assert all(torch.equal(one[name], other[name]) for name in one)


async def test_a_server_without_likely_tokens_is_taught_token_by_token(
    there: TinkerService, service: LocalService, tmp_path: Path
) -> None:
    service.order(without=["topk", "targets", "wide", "ppo"])
    abilities = await there.survey()
    assert {abilities.likely_tokens, abilities.chosen_tokens, abilities.wide_targets} == {False}
    assert not abilities.policy_loss
    report = await training_of(there, tmp_path, abilities).step(order_of(*batch(), parent=None), tmp_path / "v1.json")
    assert report.state == "done"
    assert report.metrics["loss/opd"] != 0
    assert "sample/overlap" not in report.metrics


async def test_scores_are_those_of_the_passes_that_train(there: TinkerService, tmp_path: Path) -> None:
    training = training_of(there, tmp_path)
    made = await training.step(order_of(*batch(), parent=None), tmp_path / "v1.json")
    assert made.weights is not None
    ids = ((1, 5, 6, 7, 8), (3, 9, 9, 4))
    order = ScoreOrder(
        sequences=ids, starts=(2, 1), parent=None, candidate=made.weights, settings=order_of(parent=None).settings
    )
    report = await training.score(order)
    again = await training_of(there, tmp_path).score(order)
    sampler = there.sampler()
    for weights, told, told_again in (
        (None, report.parent, again.parent),
        (made.weights.uri, report.candidate, again.candidate),
    ):
        for one, other in zip(told, told_again, strict=True):
            assert one == pytest.approx(other, abs=1e-5)
        for sequence, start, values in zip(ids, (2, 1), told, strict=True):
            read = await sampler.read(weights, sequence, last=len(sequence) - start)
            assert values == pytest.approx(read.logprobs.tolist(), abs=1e-4)
    assert report.parent != report.candidate


async def test_the_bill_names_every_token(there: TinkerService, service: LocalService, tmp_path: Path) -> None:
    before = len(service.diary())
    prices = Prices(prefill=1.0, sample=2.0, train=3.0)
    report = await training_of(there, tmp_path).step(order_of(*batch(), parent=None), tmp_path / "v1.json")
    diary = service.diary()[before:]
    trained = sum(one["tokens"] for one in diary if one["event"] == "backward")
    bill = Till(tmp_path / "bill", prices).bill()
    assert bill.today.train == report.metrics["cost/train_tokens"] == trained
    read = sum(one["tokens"] for one in diary if one["event"] == "forward")
    prompts = sum(one["prompt"] for one in diary if one["event"] == "sample")
    assert bill.today.prefill + bill.today.cached == read + prompts
    assert bill.usd_today == pytest.approx(report.metrics["cost/usd"])
    assert bill.usd_today == pytest.approx(prices.cost(bill.total))


async def test_rate_limits_and_broken_connections_are_waited_out(
    there: TinkerService, service: LocalService, tmp_path: Path
) -> None:
    faults = [
        {"route": "forward_backward", "status": 429, "times": 1},
        {"route": "optim_step", "status": 0, "times": 1},
        {"route": "retrieve_future", "status": 503, "times": 2},
        {"route": "asample", "status": 429, "times": 1},
    ]
    calm = await training_of(there, tmp_path).step(order_of(*batch(), parent=None), tmp_path / "calm.json")
    service.order(faults=faults)
    report = await training_of(there, tmp_path).step(order_of(*batch(), parent=None), tmp_path / "v1.json")
    one, other = kept(service, calm), kept(service, report)
    assert all(torch.equal(one[name], other[name]) for name in one), "a request that is sent again counts once"


async def test_what_is_not_ready_yet_passes(there: TinkerService, service: LocalService) -> None:
    """Status 425: neither refused for good nor gone, so that whoever asks hears 503, and asks again."""
    sampler = there.sampler()
    await sampler.open(None)
    service.order(faults=[{"route": "asample", "status": 425, "times": 1}])
    with pytest.raises(CloudError) as early:
        await sampler.read(None, (1, 2, 3), last=2)
    assert early.value.kind == "busy"
    assert (await sampler.read(None, (1, 2, 3), last=2)).logprobs.shape == (2,)


async def test_a_service_that_was_started_again_is_asked_in_a_new_session(
    service: LocalService, tmp_path: Path
) -> None:
    there = TinkerService(service.access())
    training, sampler = training_of(there, tmp_path), there.sampler()
    first = await training.step(order_of(*batch(), parent=None), tmp_path / "v1.json")
    assert first.weights is not None
    before = await sampler.read(first.weights.uri, (1, 5, 6), last=2)
    service.kill()
    service.start()
    after = await sampler.read(first.weights.uri, (1, 5, 6), last=2)
    assert after.logprobs == pytest.approx(before.logprobs)
    second = order_of(*batch(), parent=first.weights, number=2)
    with pytest.raises(CloudError):
        await training.step(second, tmp_path / "v2.json")  # the run that was open is gone
    assert (await training.step(second, tmp_path / "v2.json")).state == "done"


async def test_who_does_not_pay_is_told_so(service: LocalService) -> None:
    """The SDK would wait an hour without a word."""
    there = TinkerService(service.access())
    sampler = there.sampler()
    await sampler.open(None)
    routes = ("asample", "get_server_capabilities")
    service.order(faults=[{"route": route, "status": 402, "times": 1000} for route in routes])
    with pytest.raises(CloudError, match="asks for payment") as failure:
        await sampler.read(None, (1, 5, 6), last=2)
    assert failure.value.kind == "billing"


async def test_a_service_that_is_away_is_not_waited_for_without_end(service: LocalService) -> None:
    there = TinkerService(service.access(patience_s=3.0))
    sampler, learner = there.sampler(), there.learner()
    await sampler.open(None)
    await learner.begin(None, Form(rank=RANK, seed=0))
    service.order(down=True)
    for ask in (
        sampler.read(None, (1, 5, 6), last=2),
        learner.move(Move(learning_rate=0.1, beta1=0.9, beta2=0.9, weight_decay=0.0, max_norm=1.0)),
    ):
        with pytest.raises(CloudError) as failure:
            await ask
        assert failure.value.kind == "away"
        assert "has not answered for 3 s" in str(failure.value)
