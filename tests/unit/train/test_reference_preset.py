"""`training.preset: reference` from the settings to the gradient, against the published recipe in plain float64.

Two turns are credited by the real loop: one got −1 and a hint, one +1 and none. A step on both then has to be what the
formula says: raw ±1 whatever came before, the frozen base model as the teacher behind the hinted prompt and, without a
hint, behind the turn's own; log-probs at T = 0.6 though the answers were sampled at another; no importance
weights; the mean over each answer and then over both. The step starts from weights that have moved, so that the teacher
behind the same prompt says something else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaForCausalLM

from openclaw_rl.config import Config, load_config
from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.credit.registry import CreditSettings
from openclaw_rl.protocols import Renderer
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Message, Sample, Sampling, StepOrder, StepReport, Turn
from tests.factories.conversations import (
    HINT,
    MODEL,
    credits_of,
    judge,
    make_child,
    make_turn,
    put_conversation,
    scored,
)
from tests.factories.orders import weights_of
from tests.tiny import build_tiny_model
from tests.unit.train.objective import plain

TEMPERATURE = 0.6
BETA = 0.9  # AdamW's first average


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


def config(*more: str) -> Config:
    return load_config(env={}, overrides=["training.preset=reference", "training.use_lora=false", *more]).config


def conversation(renderer: Renderer) -> list[Turn]:
    """Three turns, the second longer than the first; sampled at 0.9."""

    def with_prompt(turn: Turn, *token_ids: int) -> Turn:
        prompt = tuple(renderer.render(turn.messages, (), {}))
        made = make_turn(turn.index, token_ids=(*token_ids, 2))
        return make_turn(
            turn.index,
            parent=turn.parent,
            messages=turn.messages,
            prompt_ids=prompt,
            completion=made.completion,
            sampling=Sampling(max_tokens=64, temperature=0.9),
        )

    first = with_prompt(make_turn(0, messages=(Message(role="user", content="a note"),)), 300, 41, 77)
    second = with_prompt(make_child(first, "no, shorter"), 55, 260, 301, 420, 99)
    return [first, second, with_prompt(make_child(second, "thanks"), 60)]


async def credited(store: SqliteStore, renderer: Renderer, chosen: Config) -> list[Sample]:
    await put_conversation(store, conversation(renderer))
    await judge(store, {0: scored(-1, HINT), 1: scored(1)})
    settings = CreditSettings.of(chosen.training, chosen.rollout)
    assert await CreditLoop(store.lessons, renderer, settings, MODEL).work() == 2
    return [sample for credit in (await credits_of(store)).values() for sample in credit.samples]


def take(trainer: TorchTrainer, folder: Path, number: int, chosen: Config, samples: list[Sample]) -> StepReport:
    order = StepOrder(
        line="ann",
        number=number,
        parent=None if number == 1 else weights_of(folder / f"v{number - 1}"),
        parent_number=number - 1,
        seed=0,
        settings=chosen.training.model_dump(mode="json"),
        samples=tuple(samples),
    )
    report = trainer.step(order, folder / f"v{number}")
    assert report.state == "done", report.reason
    return report


@dataclass(frozen=True)
class Recipe:
    """The published loss of a batch, from the models as transformers computes them, in float64."""

    student: LlamaForCausalLM
    base: LlamaForCausalLM

    def logprobs(self, model: LlamaForCausalLM, prompt: tuple[int, ...], response: tuple[int, ...]) -> Tensor:
        logits: Tensor = model(input_ids=torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
        return (logits / TEMPERATURE).log_softmax(-1)

    def losses(self, samples: list[Sample], rewards: list[float]) -> tuple[float, float]:
        """Binary and OPD, the mean over the samples of the mean over each one's tokens, by loops over floats."""
        binary, opd = [], []
        for sample, reward in zip(samples, rewards, strict=True):
            old, teacher = self._rows(sample)
            size = len(sample.response_ids)
            binary.append(sum(plain.surrogate(0.0, reward, 0.2, 0.28)[0] for _ in range(size)) / size)
            each = [
                plain.topk_loss(row, row, taught, set(plain.top_k(row, 4)), 1.0, 0.2, 0.28)[0]
                for row, taught in zip(old.tolist(), teacher.tolist(), strict=True)
            ]
            opd.append(sum(each) / size)
        return sum(binary) / len(binary), sum(opd) / len(opd)

    def gradients(self, samples: list[Sample], rewards: list[float]) -> None:
        """Into the student's parameters. At ρ = 1 nothing is clipped, and the ratio's gradient is the log-prob's."""
        for sample, reward in zip(samples, rewards, strict=True):
            old_RV, teacher_RV = self._rows(sample)
            ids = old_RV.topk(4).indices
            weights = old_RV.gather(-1, ids).softmax(-1)
            gaps = (teacher_RV - old_RV).gather(-1, ids).clamp(-1.0, 1.0)
            new_RV = self.logprobs(self.student, sample.prompt_ids, sample.response_ids)
            said = new_RV.gather(-1, torch.tensor(sample.response_ids).unsqueeze(-1)).squeeze(-1)
            loss = -reward * said - (weights * gaps * new_RV.gather(-1, ids)).sum(-1)
            (loss.mean() / len(samples)).backward()

    def _rows(self, sample: Sample) -> tuple[Tensor, Tensor]:
        (candidate,) = sample.candidates
        with torch.no_grad():
            old = self.logprobs(self.student, sample.prompt_ids, sample.response_ids)
            return old, self.logprobs(self.base, sample.teacher_prompt(candidate), sample.response_ids)


def float64(folder: Path) -> LlamaForCausalLM:
    llama: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    llama.model.embed_tokens.padding_idx = None  # or <|im_end|>, which every prompt holds, would get no gradient there
    return llama


def in_order(llama: LlamaForCausalLM) -> list[Tensor]:
    """The gradients, laid out as the trainer's parameters are."""

    def grad(*modules: torch.nn.Module) -> Tensor:
        return torch.cat([module.weight.grad for module in modules])  # type: ignore[misc]

    found = [grad(llama.model.embed_tokens)]
    for layer in llama.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        found += [
            grad(layer.input_layernorm),
            grad(attention.q_proj, attention.k_proj, attention.v_proj),
            grad(attention.o_proj),
            grad(layer.post_attention_layernorm),
            grad(mlp.gate_proj, mlp.up_proj),
            grad(mlp.down_proj),
        ]
    return [*found, grad(llama.model.norm)]


def first_averages(checkpoint: Path) -> dict[int, Tensor]:
    tensors = load_file(checkpoint / "trainer" / "optimiser.safetensors")
    return {int(name.partition(".")[0]): one for name, one in tensors.items() if name.endswith(".exp_avg")}


async def test_two_judged_turns_become_the_published_step(tiny: Path, store: SqliteStore, tmp_path: Path) -> None:
    renderer, chosen = load_renderer(tiny, "tiny"), config()
    samples = await credited(store, renderer, chosen)
    hinted, unhinted = samples
    assert HINT in renderer.decode(hinted.teacher_prompt(hinted.candidates[0]))
    assert unhinted.teacher_prompt(unhinted.candidates[0]) == unhinted.prompt_ids

    trainer = TorchTrainer(tiny, device=torch.device("cpu"), dtype=torch.float32)
    take(trainer, tmp_path, 1, config("training.learning_rate=0.003"), samples)
    report = take(trainer, tmp_path, 2, chosen, samples)

    recipe = Recipe(student=float64(tmp_path / "v1" / "weights"), base=float64(tiny))
    rewards = [-1.0, 1.0]
    binary, opd = recipe.losses(samples, rewards)
    assert abs(opd) > 0.05, "the teacher has something to say"
    assert report.metrics["loss/binary"] == pytest.approx(binary, abs=1e-5)
    assert report.metrics["loss/opd"] == pytest.approx(opd, abs=1e-5)
    assert report.metrics["loss/total"] == pytest.approx(binary + opd, abs=1e-5)
    assert "sample/importance" not in report.metrics
    assert (report.metrics["learning_rate"], report.metrics["reward/mean"]) == (1e-5, 0.0)

    recipe.gradients(samples, rewards)
    wanted = in_order(recipe.student)
    norm = torch.cat([one.flatten() for one in wanted]).norm()
    assert report.metrics["gradient/norm"] == pytest.approx(norm.item(), rel=1e-4)
    before, after = first_averages(tmp_path / "v1"), first_averages(tmp_path / "v2")
    assert len(after) == len(wanted)
    for index, expected in enumerate(wanted):
        found = (after[index].double() - BETA * before[index].double()) / (1 - BETA)  # what AdamW was given
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected / max(1.0, norm), atol=1e-5, rtol=1e-3)


async def test_the_default_recipe_is_another_step(tiny: Path, store: SqliteStore, tmp_path: Path) -> None:
    """The same turns with three of the differences undone: each of them is seen in what is computed."""
    chosen = config("training.advantage=baseline", "training.unhinted_opd=false", "training.importance_clip=2.0")
    samples = await credited(store, load_renderer(tiny, "tiny"), chosen)
    hinted, unhinted = samples
    assert hinted.advantages[0] == -1.0
    assert unhinted.advantages[0] == pytest.approx(2.0), "the mean of one −1 is its baseline"
    assert (unhinted.w_opd, unhinted.candidates) == (0.0, ())
    report = take(TorchTrainer(tiny, device=torch.device("cpu"), dtype=torch.float32), tmp_path, 1, chosen, samples)
    assert report.metrics["sample/importance"] != 1.0
