"""Architectures of others learn through transformers and peft: as our own network would, and as surely."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from openclaw_rl.errors import ModelError
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.architecture import read_architecture
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.train.passes.activations import ALL, Kept
from openclaw_rl.train.passes.fallback import PeftStudent, TransformersModel, WholeStudent
from openclaw_rl.train.passes.reader import ResponseReading
from openclaw_rl.train.passes.sequences import Sequenced
from openclaw_rl.train.worker.checkpoint import WEIGHTS, save_checkpoint
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.student import NetworkModel
from openclaw_rl.train.worker.trainer import TorchTrainer
from tests.factories.orders import exercise, order, sample, settings

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GPT2: dict[str, Any] = {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 256, "vocab_size": 512}
FOREIGN = ("qwen2", "gemma2", "cohere", "gpt2", "opt")


def make(name: str) -> Any:
    torch.manual_seed(0)
    ends: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2}
    match name:
        case "qwen2":  # biases
            return Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=True, **SIZES))
        case "gemma2":  # a window, and logits that are capped behind the head
            return Gemma2ForCausalLM(Gemma2Config(head_dim=16, sliding_window=8, final_logit_softcapping=2.0, **SIZES))
        case "cohere":  # logits that are scaled behind the head
            return CohereForCausalLM(CohereConfig(logit_scale=0.25, **SIZES))
        case "gpt2":  # linear layers that lie the other way round; dropout everywhere
            return GPT2LMHeadModel(GPT2Config(initializer_range=0.2, **GPT2, **ends))
        case "opt":  # dropout by function, not by module
            sizes: dict[str, Any] = {
                key: SIZES[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
            }
            return OPTForCausalLM(OPTConfig(ffn_dim=96, word_embed_proj_dim=48, init_std=0.2, **sizes, **ends))
    raise AssertionError(name)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tmp_path_factory.mktemp("models") / name for name in FOREIGN}
    for name, folder in made.items():
        make(name).save_pretrained(folder)
    return made


@pytest.fixture(scope="module", params=["llama", "qwen3, own head"])
def twins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same model twice: as our own network computes it, and with biases of zero, which it does not compute."""
    folder = tmp_path_factory.mktemp("twins")
    torch.manual_seed(0)
    plain: Any
    biased: Any
    if request.param == "llama":
        plain = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True))
        biased = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True))
    else:
        head: dict[str, Any] = {"head_dim": 16, "tie_word_embeddings": False}
        plain = Qwen3ForCausalLM(Qwen3Config(**SIZES, **head))
        biased = Qwen3ForCausalLM(Qwen3Config(**SIZES, **head, attention_bias=True))
    for name, parameter in biased.named_parameters():
        values = dict(plain.named_parameters()).get(name)
        parameter.data.copy_(torch.zeros_like(parameter) if values is None else values)
    plain.save_pretrained(folder / "native")
    biased.save_pretrained(folder / "foreign")
    return folder / "native", folder / "foreign"


def new_trainer(model: Path) -> TorchTrainer:
    return TorchTrainer(model, device=CPU, dtype=torch.float32)


def parent_of(native: Path, folder: Path) -> str:
    """A checkpoint with an adapter that already does something, and an optimiser that never moved."""
    arch = read_architecture(native)
    assert arch is not None
    adapter = AdapterWeights.random(arch, rank=4, alpha=8.0, seed=3, b_std=0.05, device=CPU, dtype=torch.float32)
    fresh = torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
    save_checkpoint(folder / "v1", save_weights=adapter.save, optimiser=fresh, average=None, step=1)
    return str(folder / "v1")


def named_gradients(trainer: TorchTrainer, checkpoint: Path) -> dict[str, Tensor]:
    """By the names of an adapter's file, up to one factor: what the first step of an optimiser remembers of them."""
    moments = load_file(checkpoint / "trainer" / "optimiser.safetensors")
    weights = checkpoint / WEIGHTS
    if isinstance(trainer._base, NetworkModel):
        adapter = AdapterWeights.load(weights, trainer._base.network.arch, device=CPU, dtype=torch.float32)
        adapter.over(moments["0.exp_avg"]).save(checkpoint / "moments")
        return load_file(checkpoint / "moments" / "adapter_model.safetensors")
    assert isinstance(trainer._base, TransformersModel)
    student = trainer._base.student(weights, TrainSettings.from_training(settings()), seed=0)
    assert isinstance(student, PeftStudent)
    names = [f"base_model.model.{name.replace('.default', '')}" for name in student._learning]
    return {name: moments[f"{index}.exp_avg"] for index, name in enumerate(names)}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_gradient_checkpointing": True},
        {"teacher": "current", "kl_coef": 0.1},
        {"teacher": "ema", "ema_decay": 0.5},
        {"critic": True},
    ],
    ids=lambda changes: next(iter(changes), "plain"),
)
def test_a_whole_step_is_that_of_our_own_network(
    twins: tuple[Path, Path], tmp_path: Path, changes: dict[str, Any]
) -> None:
    parent = parent_of(twins[0], tmp_path)
    metrics, gradients, weights = [], [], []
    for folder in twins:
        trainer = new_trainer(folder)
        assert isinstance(trainer._base, NetworkModel if folder.name == "native" else TransformersModel)
        target = tmp_path / folder.name
        target.mkdir()
        given, made = order(target, 2, parent=parent, learning_rate=0.001, lora_alpha=8.0, **changes)
        given = replace(given, exercises=(exercise(),), anchors=((1, 5, 6),), stop_token_ids=(2,))
        report = trainer.step(given, made)
        assert report.state == "done"
        metrics.append(
            {name: value for name, value in report.metrics.items() if not name.startswith(("step/", "time/"))}
        )
        gradients.append(named_gradients(trainer, target / "v2"))
        weights.append(load_file(target / "v2" / WEIGHTS / "adapter_model.safetensors"))
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-3, abs=1e-5)
    assert gradients[0].keys() == gradients[1].keys() == weights[0].keys() == weights[1].keys()
    start = load_file(Path(parent) / WEIGHTS / "adapter_model.safetensors")
    for name, expected in gradients[0].items():
        assert float(expected.abs().max()) > 1e-6
        torch.testing.assert_close(gradients[1][name], expected, atol=1e-6, rtol=1e-3)
        torch.testing.assert_close(weights[1][name], weights[0][name], atol=1e-4, rtol=1e-3)
        assert not torch.equal(weights[1][name], start[name])


def test_a_teacher_of_another_architecture_reads_for_our_own_network(twins: tuple[Path, Path], tmp_path: Path) -> None:
    native, foreign = twins
    losses = []
    for name, changes in (("base", {}), ("path", {"teacher": "path", "teacher_path": str(foreign)})):
        (tmp_path / name).mkdir()
        losses.append(new_trainer(native).step(*order(tmp_path / name, 1, **changes)).metrics["loss/opd"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0] != 0


@pytest.mark.parametrize("name", FOREIGN)
def test_the_readings_are_those_of_the_model_itself(folders: dict[str, Path], name: str) -> None:
    given = sample(1)
    oracle: Any = AutoModelForCausalLM.from_pretrained(folders[name], dtype=torch.float32).eval()
    with torch.no_grad():
        told = oracle(torch.tensor([[*given.prompt_ids, *given.response_ids]]), output_hidden_states=True)
    rows = slice(len(given.prompt_ids) - 1, -1)
    reader = TransformersModel(folders[name], device=CPU, dtype=torch.float32).reader
    two = [Sequenced(given.prompt_ids[2:], given.response_ids), Sequenced(given.prompt_ids, given.response_ids)]
    _, reading = reader.read(two)
    torch.testing.assert_close(logprobs(reading), told.logits[0, rows].log_softmax(-1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(reading.hidden, told.hidden_states[-1][0, rows], atol=1e-5, rtol=1e-5)
    assert reading.hidden.shape == (len(given.response_ids), reader.hidden_size)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_line_learns_resumes_and_leaves_the_base_alone(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    before = folder_sha256(folders[name])
    trainer = new_trainer(folders[name])
    assert isinstance(trainer._base, TransformersModel)
    weights = {key: value.clone() for key, value in trainer._base._model.state_dict().items()}
    first = trainer.step(*order(tmp_path, 1))
    second = trainer.step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
    assert (first.state, second.state) == ("done", "done")
    assert sorted(path.name for path in (tmp_path / "v1" / WEIGHTS).iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    adapter = load_file(tmp_path / "v1" / WEIGHTS / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in adapter.values()} == {torch.float32}
    assert all(float(tensor.abs().max()) > 0 for key, tensor in adapter.items() if "lora_B" in key)
    again = new_trainer(folders[name]).step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
    assert again.sha256 == second.sha256 != first.sha256
    assert folder_sha256(folders[name]) == before
    after = trainer._base._model.state_dict()
    assert after.keys() == weights.keys()
    assert all(torch.equal(after[key], value) for key, value in weights.items())


@pytest.mark.parametrize(
    "changes",
    [
        {"lora_dropout": 0.3, "use_gradient_checkpointing": True},
        {"teacher": "ema", "ema_decay": 0.5, "critic": True},
        {"use_lora": False},
        {"lora_target_modules": ["q_proj", "o_proj"], "num_epochs": 2},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_option_takes_a_step_that_repeats(
    folders: dict[str, Path], tmp_path: Path, changes: dict[str, Any]
) -> None:
    sums = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        first = new_trainer(folders["qwen2"])
        first.step(*order(folder, 1, **changes))
        goes_on = first if folder.name == "a" else new_trainer(folders["qwen2"])
        sums.append(goes_on.step(*order(folder, 2, parent=str(folder / "v1"), **changes)).sha256)
    assert sums[0] == sums[1]


def logprobs(reading: ResponseReading) -> Tensor:
    """Of the whole vocabulary."""
    return reading.rows(1.0).logprob(torch.arange(SIZES["vocab_size"]).expand(len(reading.hidden), -1))


def gradient(folder: Path, *, recompute: bool = False, dropout: float = 0.0, seed: int | None = None) -> Tensor:
    model = TransformersModel(folder, device=CPU, dtype=torch.float32)
    chosen = TrainSettings.from_training(settings(lora_dropout=dropout))
    student = model.student(None, chosen, seed=0)
    with torch.no_grad():
        for index, parameter in enumerate(student.parameters):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)) * 0.1)
    given = sample(2)
    sequences = [Sequenced(given.prompt_ids, given.response_ids)]
    (reading,) = student.reader.read(sequences, kept=Kept(keep="nothing") if recompute else ALL, dropout_seed=seed)
    logprobs(reading)[:, 7].sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in student.parameters if parameter.grad is not None])


@pytest.mark.parametrize("name", ["opt", "gpt2", "gemma2"])
def test_recomputing_changes_nothing_and_never_switches_the_models_own_dropout_on(
    folders: dict[str, Path], name: str
) -> None:
    plain = gradient(folders[name])
    assert len(plain) > 1000
    torch.testing.assert_close(gradient(folders[name], recompute=True, seed=5), plain, atol=1e-6, rtol=1e-5)


def test_the_adapters_dropout_follows_its_seed_and_survives_recomputing(folders: dict[str, Path]) -> None:
    state = torch.random.get_rng_state()
    dropped = gradient(folders["qwen2"], dropout=0.4, seed=5)
    assert torch.equal(torch.random.get_rng_state(), state), "nobody else's random numbers move"
    assert torch.equal(gradient(folders["qwen2"], dropout=0.4, seed=5), dropped)
    torch.testing.assert_close(
        gradient(folders["qwen2"], dropout=0.4, seed=5, recompute=True), dropped, atol=1e-6, rtol=1e-5
    )
    assert not torch.allclose(gradient(folders["qwen2"], dropout=0.4, seed=6), dropped)
    assert torch.equal(gradient(folders["qwen2"], dropout=0.4), gradient(folders["qwen2"])), "off without a seed"


@pytest.mark.parametrize("recompute", [False, True])
def test_recomputing_keeps_nothing_inside_a_layer(folders: dict[str, Path], recompute: bool) -> None:
    model = TransformersModel(folders["qwen2"], device=CPU, dtype=torch.float32)
    student = model.student(None, TrainSettings.from_training(settings()), seed=0)
    assert isinstance(student, PeftStudent)
    passes: list[str] = []
    student._worn.model.model.layers[0].self_attn.register_forward_pre_hook(lambda *_: passes.append("layer 0"))
    (reading,) = student.reader.read([Sequenced((5, 6, 7), (8, 9))], kept=Kept(keep="nothing") if recompute else ALL)
    logprobs(reading)[:, 7].sum().backward()
    assert len(passes) == (2 if recompute else 1)


def test_an_average_is_read_in_place_of_what_learns_and_leaves_it_alone(folders: dict[str, Path]) -> None:
    model = TransformersModel(folders["qwen2"], device=CPU, dtype=torch.float32)
    student = model.student(None, TrainSettings.from_training(settings()), seed=0)
    asked = [Sequenced((5, 6, 7), (8, 9, 10))]
    size = sum(parameter.numel() for parameter in student.parameters)
    flat = torch.randn(size, generator=torch.Generator().manual_seed(1)) * 0.1
    with torch.no_grad():
        before = logprobs(student.reader.read(asked)[0])
        averaged = logprobs(student.averaged(flat).read(asked)[0])
        assert torch.equal(logprobs(student.reader.read(asked)[0]), before)
        torch.nn.utils.vector_to_parameters(flat, student.parameters)
        torch.testing.assert_close(logprobs(student.reader.read(asked)[0]), averaged)
    assert not torch.allclose(averaged, before, atol=0.01)


def test_full_fine_tuning_saves_a_model_that_transformers_loads(folders: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(folders["opt"], tmp_path / "source")
    (source / "tokenizer.json").write_text("{}")
    trainer = new_trainer(source)
    report = trainer.step(*order(tmp_path, 1, use_lora=False))
    assert report.state == "done"
    weights = tmp_path / "v1" / WEIGHTS
    assert (weights / "tokenizer.json").read_text() == "{}"
    assert json.loads((weights / "config.json").read_text())["dropout"] == 0.1, "as the source has it"
    before, after = (load_file(folder / "model.safetensors") for folder in (source, weights))
    assert before.keys() == after.keys()
    assert sum(not torch.equal(before[name], after[name]) for name in before) > len(before) // 2
    assert isinstance(trainer._base, TransformersModel)
    student = trainer._base.student(weights, TrainSettings.from_training(settings(use_lora=False)), seed=0)
    assert isinstance(student, WholeStudent)


def test_the_log_says_once_how_it_is_trained(
    folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    trainer = new_trainer(folders["qwen2"])
    trainer.step(*order(tmp_path, 1))
    trainer.step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
    assert caplog.text.count("turn by turn through transformers") == 1


def test_what_cannot_be_done_says_what_helps(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"w_up.*training\.lora_target_modules"):
        new_trainer(folders["qwen2"]).step(*order(tmp_path, 1, lora_target_modules=["w_up"]))
    new_trainer(folders["qwen2"]).step(*order(tmp_path, 1))
    with pytest.raises(ModelError, match="for another model"):
        new_trainer(folders["gemma2"]).step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
    path = tmp_path / "v1" / WEIGHTS / "adapter_model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor * float("nan") for name, tensor in tensors.items()}, path)
    with pytest.raises(ModelError, match="not finite"):
        new_trainer(folders["qwen2"]).step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
