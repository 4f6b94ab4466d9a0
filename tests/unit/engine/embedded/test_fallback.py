"""Versions of a model that runs through transformers: published, answered with, refused; the base stays as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM, Qwen2Config, Qwen2ForCausalLM

from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.engine.embedded.loading import load_engine
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.errors import EngineRefused
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.model.foreign import load_model
from openclaw_rl.model.foreign_adapter import new_adapter
from openclaw_rl.types import BASE_VERSION, Publication
from tests.factories.weights import folder_ref
from tests.unit.engine.prompts import ask, whole

CPU = torch.device("cpu")
PROMPT = list(range(3, 60))
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


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.manual_seed(1)
    made = {}
    for name, model in (
        ("qwen2", Qwen2ForCausalLM(Qwen2Config(**SIZES))),
        ("gemma2", Gemma2ForCausalLM(Gemma2Config(head_dim=16, sliding_window=40, **SIZES))),
    ):
        made[name] = tmp_path_factory.mktemp("models") / name
        model.save_pretrained(made[name])
    return made


@pytest.fixture(params=["qwen2", "gemma2"])
def folder(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    return folders[request.param]


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[EmbeddedEngine]:
    loaded = load_engine(
        folder, EmbeddedOptions(device="cpu", prefill_chunk=16, kv_bytes=2**24, kv_after_update="exact")
    )
    yield loaded
    await loaded.close()


def make_adapter(model: Path, target: Path, *, seed: int) -> Publication:
    """An adapter that changes much, as the trainer saves one."""
    worn = new_adapter(
        load_model(model, device=CPU, dtype=torch.float32),
        rank=4,
        alpha=8.0,
        targets=["all-linear"],
        dropout=0.0,
        seed=seed,
    )
    generator = torch.Generator().manual_seed(seed)
    for parameter in worn.tensors().values():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    worn.save(target)
    return Publication(version=target.name, weights=folder_ref(str(target), folder_sha256(target)), live=True)


def plain_logprobs(model: Any, answer: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *answer]])).logits[0, len(PROMPT) - 1 : -1]
    found: list[float] = logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0].tolist()
    return found


async def greedy(engine: EmbeddedEngine, version: str | None = None) -> Any:
    return await whole(engine, ask(PROMPT, version=version, temperature=0.0, max_tokens=24))


async def test_published_adapters_answer_as_peft_does_and_the_base_goes_on(
    engine: EmbeddedEngine, folder: Path, tmp_path: Path
) -> None:
    said = {BASE_VERSION: (await greedy(engine)).logprobs}
    for seed, name in enumerate(("v1", "v2")):
        publication = make_adapter(folder, tmp_path / name, seed=seed)
        await engine.publish(publication)
        answer = await greedy(engine)
        assert answer.version == name
        oracle: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        worn = peft.PeftModel.from_pretrained(oracle, tmp_path / name).eval()
        assert answer.logprobs == pytest.approx(plain_logprobs(worn, answer.token_ids), abs=1e-4)
        said[name] = answer.logprobs
    for name, logprobs in said.items():
        assert (await greedy(engine, name)).logprobs == pytest.approx(logprobs, abs=1e-4), "v2 changed nothing else"
        assert sum(logprobs == pytest.approx(other, abs=0.05) for other in said.values()) == 1


async def test_adapters_share_the_tensors_of_the_base(engine: EmbeddedEngine, folder: Path, tmp_path: Path) -> None:
    base: Any = engine._base.runner
    await engine.publish(make_adapter(folder, tmp_path / "v1", seed=0))
    worn: Any = engine._pages._pages["v1"].weights.runner
    shared = {tensor.data_ptr() for tensor in base._model.parameters()}
    own = [tensor for tensor in worn._model.parameters() if tensor.data_ptr() not in shared]
    assert sum(tensor.numel() for tensor in own) == sum(
        tensor.numel() for tensor in load_file(tmp_path / "v1" / "adapter_model.safetensors").values()
    )


async def test_full_weights_are_published_beside_the_base(
    engine: EmbeddedEngine, folder: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    before = await greedy(engine)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    torch.manual_seed(9)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(tmp_path / "v1")
    await engine.publish(
        Publication(version="v1", weights=folder_ref(str(tmp_path / "v1"), folder_sha256(tmp_path / "v1")), live=True)
    )
    answer = await greedy(engine)
    assert answer.logprobs != pytest.approx(before.logprobs, abs=0.05)
    assert answer.logprobs == pytest.approx(plain_logprobs(model, answer.token_ids), abs=1e-4)
    other = folders["gemma2" if folder.name == "qwen2" else "qwen2"]
    with pytest.raises(EngineRefused, match="another architecture"):
        await engine.publish(Publication(version="v2", weights=folder_ref(str(other), folder_sha256(other))))
    model.model.layers[1].mlp.up_proj.weight.data[3, 5] = float("nan")
    model.save_pretrained(tmp_path / "v3")
    with pytest.raises(EngineRefused, match="not finite"):
        await engine.publish(
            Publication(version="v3", weights=folder_ref(str(tmp_path / "v3"), folder_sha256(tmp_path / "v3")))
        )


async def test_what_was_not_published_or_does_not_fit_is_refused(
    engine: EmbeddedEngine, folder: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    publication = make_adapter(folder, tmp_path / "v1", seed=0)
    path = tmp_path / "v1" / "adapter_model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor * 2 for name, tensor in tensors.items()}, path)
    with pytest.raises(EngineRefused, match="sha256|checksum"):
        await engine.publish(publication)

    async def refused(match: str, changed: dict[str, torch.Tensor]) -> None:
        save_file(changed, path)
        with pytest.raises(EngineRefused, match=match):
            await engine.publish(
                Publication(version="v1", weights=folder_ref(str(path.parent), folder_sha256(path.parent)))
            )

    await refused("not finite", {name: tensor * float("inf") for name, tensor in tensors.items()})
    await refused("not of rank 4", {name: torch.cat([tensor, tensor]) for name, tensor in tensors.items()})
    await refused("for another model", dict(list(tensors.items())[2:]))
    other = make_adapter(folders["gemma2" if folder.name == "qwen2" else "qwen2"], tmp_path / "v2", seed=0)
    with pytest.raises(EngineRefused, match="for another model"):
        await engine.publish(other)
    state = await engine.state()
    assert (state.versions, state.live_version) == ((BASE_VERSION,), BASE_VERSION)
