"""Every architecture that is promised: read alike in one pass and token by token, trained, served as it was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import nn

from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.engine.embedded.fallback import TransformersRunner
from openclaw_rl.engine.embedded.loading import load_engine
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.errors import ModelError
from openclaw_rl.model.families import ARCHITECTURES, EXPERTS, HYBRID, OWN, SEEING, check_architecture, text_config
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.model.foreign import load_model
from openclaw_rl.model.foreign_adapter import linear_layers, load_adapter, new_adapter
from openclaw_rl.train.passes.activations import ALL, Kept
from openclaw_rl.train.passes.fallback import TransformersModel
from openclaw_rl.train.passes.reader import token_logprobs
from openclaw_rl.train.passes.sequences import Sequenced
from openclaw_rl.train.worker.checkpoint import WEIGHTS
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import BASE_VERSION, Publication, ScoreRequest
from tests.factories.families import VOCAB_SIZE, WINDOW, build_family
from tests.factories.orders import order, settings
from tests.factories.weights import folder_ref
from tests.unit.engine.prompts import ask, whole

CPU = torch.device("cpu")
FOREIGN = [name for name in ARCHITECTURES if name not in OWN]
SIX = (
    "Gemma3ForConditionalGeneration",
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5ForConditionalGeneration",
)
NAMES = [pytest.param(name, marks=() if name in SIX else pytest.mark.hardening) for name in FOREIGN]
PROMPT = [3 + (7 * i) % 400 for i in range(60)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root, made = tmp_path_factory.mktemp("families"), dict[str, Path]()

    def build(name: str) -> Path:
        if name not in made:
            made[name] = build_family(name, root / name)
        return made[name]

    return build


def engine_for(folder: Path) -> EmbeddedEngine:
    return load_engine(folder, EmbeddedOptions(device="cpu", prefill_chunk=16, kv_bytes=2**24, kv_after_update="exact"))


@pytest.mark.parametrize("name", NAMES)
async def test_it_answers_learns_and_serves_what_it_learned(built: Any, tmp_path: Path, name: str) -> None:
    folder = built(name)
    config = json.loads((folder / "config.json").read_text())
    assert check_architecture("tiny", config) == name
    said = text_config(config)
    assert (said["max_position_embeddings"], said["vocab_size"], said["eos_token_id"]) == (WINDOW, VOCAB_SIZE, 2)

    report = TorchTrainer(folder, device=CPU, dtype=torch.float32).step(*order(tmp_path, 1, learning_rate=0.03))
    assert report.state == "done"
    weights = tmp_path / "v1" / WEIGHTS
    learned = load_file(weights / "adapter_model.safetensors")
    assert all(float(tensor.abs().max()) > 0 for key, tensor in learned.items() if "lora_B" in key), "all of it learns"

    engine = engine_for(folder)
    try:
        before = await whole(engine, ask(PROMPT, salt="a", temperature=0.0, max_tokens=12))
        publication = Publication(version="v1", weights=folder_ref(str(weights), folder_sha256(weights)), live=True)
        await engine.publish(publication)
        after = await whole(engine, ask(PROMPT, salt="a", temperature=0.0, max_tokens=12))
        assert (before.version, after.version) == (BASE_VERSION, "v1")
        for version, answer in ((BASE_VERSION, before), ("v1", after)):
            # Once from the cache, piece by piece; once by the trainer, in one pass.
            model = TransformersModel(folder, device=CPU, dtype=torch.float32)
            chosen = TrainSettings.from_training(settings())
            reader = model.reader if version == BASE_VERSION else model.student(weights, chosen, seed=0).reader
            sequence = Sequenced(tuple(PROMPT), answer.token_ids)
            (trained,) = token_logprobs(reader, [sequence])
            assert answer.logprobs == pytest.approx(trained, abs=2e-3)
            (scored,) = await engine.score(
                ScoreRequest(
                    request_id="s", sequences=((*PROMPT, *answer.token_ids),), starts=(len(PROMPT),), version=version
                )
            )
            assert scored.logprobs == pytest.approx(trained, abs=2e-3)
        assert before.logprobs != pytest.approx(after.logprobs, abs=0.02)
        # The next turn continues what is in the cache; another turn of the same session does not, and is read anew.
        longer = [*PROMPT, *after.token_ids, 9, 8, 7]
        branch = [*PROMPT[:40], *range(200, 230)]
        for prompt in (longer, branch, longer):
            told = await whole(engine, ask(prompt, salt="a", temperature=0.0, max_tokens=8))
            fresh = await whole(engine, ask(prompt, salt="", temperature=0.0, max_tokens=8))
            assert told.token_ids == fresh.token_ids
            assert told.logprobs == pytest.approx(fresh.logprobs, abs=2e-3)
    finally:
        await engine.close()


@pytest.mark.parametrize("name", ["Qwen3_5ForConditionalGeneration", "Qwen3NextForCausalLM"])
async def test_a_state_that_cannot_go_back_is_continued_or_made_anew(built: Any, name: str) -> None:
    engine = engine_for(built(name))
    try:
        first = await whole(engine, ask(PROMPT, salt="a", temperature=0.0, max_tokens=8))
        continued = await whole(engine, ask([*PROMPT, *first.token_ids, 5, 6], salt="a", max_tokens=4))
        assert continued.num_cached_tokens >= len(PROMPT) + len(first.token_ids) - 1
        shorter = await whole(engine, ask(PROMPT[:50], salt="a", max_tokens=4))
        assert shorter.num_cached_tokens == 0
    finally:
        await engine.close()


@pytest.mark.parametrize("name", NAMES)
def test_computing_again_gives_the_same_gradient(built: Any, name: str) -> None:
    gradients = []
    for kept in (ALL, Kept(keep="nothing")):
        model = TransformersModel(built(name), device=CPU, dtype=torch.float32)
        student = model.student(None, TrainSettings.from_training(settings()), seed=0)
        with torch.no_grad():
            for index, parameter in enumerate(student.parameters):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)) * 0.1)
        (reading,) = student.reader.read([Sequenced(tuple(PROMPT[:20]), (9, 8, 7))], kept=kept)
        reading.rows(1.0).logprob(torch.tensor([[9], [8], [7]])).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in student.parameters if p.grad is not None]))
    assert float(gradients[0].abs().max()) > 1e-3
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-4, rtol=1e-3)


def test_the_state_of_a_sequence_counts_however_short_it_is(built: Any) -> None:
    hybrid = TransformersRunner.load(built("Qwen3_5ForConditionalGeneration"), device=CPU, dtype=torch.float32)
    plain = TransformersRunner.load(built("Qwen3MoeForCausalLM"), device=CPU, dtype=torch.float32)
    # One layer of each kind: four heads of 16 by 16, and four steps of 2 · 2 · 16 + 4 · 16 channels.
    assert hybrid.bytes_per_strand == 4 * (4 * 16 * 16 + 4 * (2 * 2 * 16 + 4 * 16))
    assert hybrid.bytes_per_token == 4 * 2 * 2 * 16
    assert (plain.bytes_per_strand, plain.bytes_per_token) == (0, 2 * 4 * 2 * 2 * 16)


@pytest.mark.parametrize("name", ["Gemma3ForConditionalGeneration", "Qwen3NextForCausalLM", "Qwen3MoeForCausalLM"])
def test_an_adapter_is_on_the_projections_of_the_text(built: Any, name: str) -> None:
    model = load_model(built(name), device=CPU, dtype=torch.float32)
    paths = list(linear_layers(model))
    kinds = {path.rpartition(".")[2] for path in paths}
    assert not [path for path in paths if "vision" in path or "lm_head" in path]
    if name == "Qwen3MoeForCausalLM":
        assert kinds == {"q_proj", "k_proj", "v_proj", "o_proj"}, "experts and routers stay as they are"
    if name == "Qwen3NextForCausalLM":
        assert {"in_proj_qkvz", "out_proj", "q_proj", "gate_proj"} <= kinds
        assert not {"in_proj_ba", "shared_expert_gate", "gate"} & kinds
    assert all(type(model.get_submodule(path)) is nn.Linear for path in paths)


def test_a_file_says_which_of_several_layers_of_one_name_it_means(built: Any, tmp_path: Path) -> None:
    """peft and engines look for short names anywhere, also in what reads pictures."""
    for name, short in (("Gemma3ForConditionalGeneration", False), ("MistralForCausalLM", True)):
        model = load_model(built(name), device=CPU, dtype=torch.float32)
        worn = new_adapter(model, rank=2, alpha=4.0, targets=["all-linear"], dropout=0.0, seed=1)
        worn.save(tmp_path / name)
        told = json.loads((tmp_path / name / "adapter_config.json").read_text())["target_modules"]
        assert ("q_proj" in told) is short
        assert short or "model.language_model.layers.0.self_attn.q_proj" in told
        plain = load_model(built(name), device=CPU, dtype=torch.float32)
        assert load_adapter(plain, tmp_path / name).paths == worn.paths


def test_experts_cannot_be_targeted_and_full_training_can(built: Any, tmp_path: Path) -> None:
    model = load_model(built("MixtralForCausalLM"), device=CPU, dtype=torch.float32)
    with pytest.raises(ModelError, match=r"fused tensor, which training\.use_lora=false trains"):
        new_adapter(model, rank=2, alpha=4.0, targets=["gate_up_proj"], dropout=0.0, seed=1)
    trainer = TorchTrainer(built("MixtralForCausalLM"), device=CPU, dtype=torch.float32)
    assert trainer.step(*order(tmp_path, 1, use_lora=False)).state == "done"
    before, after = (
        load_file(folder / "model.safetensors") for folder in (built("MixtralForCausalLM"), tmp_path / "v1" / WEIGHTS)
    )
    assert before.keys() == after.keys()
    assert all(not torch.equal(before[name], after[name]) for name in before if "experts" in name)


def test_transformers_knows_every_architecture_we_promise() -> None:
    assert [name for name in ARCHITECTURES if not hasattr(transformers, name)] == []
    assert len(set(ARCHITECTURES)) == len(ARCHITECTURES)
    assert {*HYBRID, *EXPERTS, *SEEING} < set(ARCHITECTURES)


def test_what_googles_files_leave_out_is_what_transformers_assumes() -> None:
    said = text_config({"model_type": "gemma3", "text_config": {"hidden_size": 64}, "eos_token_id": [1, 106]})
    assumed = transformers.Gemma3TextConfig()
    for key in ("max_position_embeddings", "vocab_size"):
        assert said[key] == getattr(assumed, key)
    assert said["eos_token_id"] == [1, 106]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["T5ForConditionalGeneration"]}, "no decoder of text"),
        ({"architectures": ["BertForMaskedLM"]}, "writes no text"),
        ({"architectures": ["MambaForCausalLM"]}, "those with some layers of attention"),
        ({"architectures": ["Qwen9ForCausalLM"]}, r"nearest that is known is Qwen\dForCausalLM.*docs/extend\.md"),
        (
            {"architectures": ["GptOssForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}},
            "quantised weights .*mxfp4.*in bfloat16",
        ),
        ({"architectures": ["LlamaForCausalLM"], "auto_map": {"AutoModel": "a.B"}}, "never run"),
    ],
)
def test_what_is_not_supported_is_refused_with_what_to_do(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check_architecture("m", config)
