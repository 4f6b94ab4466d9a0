"""A loaded engine against transformers itself, on tiny models of both families; and what cannot be loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from openclaw_rl.config import ModelConfig
from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.engine.embedded.loading import load_engine
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.errors import ConfigError, EngineRefused, ModelError
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.architecture import Architecture
from openclaw_rl.model.files import resolve_model
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.types import BASE_VERSION, Delta, Publication
from tests.factories.weights import folder_ref
from tests.tiny import CONTEXT_WINDOW
from tests.unit.engine.prompts import ask, whole

PROMPTS = [[1, 300, 20, 30, 40], [1, 7], list(range(3, 90)), [500]]
FAMILIES = ["llama", "qwen3", "gemma2"]
"""The last one is not ours: it runs through transformers, and its window is shorter than a session."""


@pytest.fixture(scope="module")
def folders(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    sizes: dict[str, Any] = {
        "vocab_size": 512,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT_WINDOW,
        "initializer_range": 0.2,
        "eos_token_id": 2,
        "bos_token_id": 1,
        "pad_token_id": 0,
    }
    made = {"llama": tiny_model}
    torch.manual_seed(1)
    for name, model in (
        ("qwen3", Qwen3ForCausalLM(Qwen3Config(tie_word_embeddings=False, **sizes))),
        ("gemma2", Gemma2ForCausalLM(Gemma2Config(sliding_window=40, **sizes))),
    ):
        made[name] = tmp_path_factory.mktemp("models") / name
        model.save_pretrained(made[name])
    return made


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    return folders[request.param]


@pytest.fixture
def oracle(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[EmbeddedEngine]:
    loaded = load_engine(folder, options())
    yield loaded
    await loaded.close()


def options(**changes: Any) -> EmbeddedOptions:
    return EmbeddedOptions(**{"device": "cpu", "prefill_chunk": 16, "kv_bytes": 2**24, **changes})


async def run(engine: EmbeddedEngine, prompt: Sequence[int], **sampling: Any) -> Delta:
    """The whole answer, at most 24 tokens unless `sampling` says otherwise."""
    return await whole(engine, ask(prompt, **{"max_tokens": 24, **sampling}))


def plain_logprobs(oracle: Any, prompt: Sequence[int], answer: Sequence[int], temperature: float) -> torch.Tensor:
    """[answer, vocabulary] of one forward pass over everything."""
    with torch.no_grad():
        logits = oracle(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, dim=-1)


@pytest.mark.parametrize("penalty", [1.0, 1.3])
async def test_greedy_is_what_transformers_generates(oracle: Any, engine: EmbeddedEngine, penalty: float) -> None:
    for prompt in PROMPTS:
        expected = oracle.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),
            do_sample=False,
            max_new_tokens=24,
            repetition_penalty=penalty,
            eos_token_id=None,
            pad_token_id=0,
        )[0, len(prompt) :].tolist()
        answer = await run(engine, prompt, temperature=0.0, repetition_penalty=penalty)
        assert list(answer.token_ids) == expected
        assert answer.finish_reason == "length"


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
async def test_logprobs_are_those_of_a_plain_forward_pass(
    oracle: Any, engine: EmbeddedEngine, temperature: float
) -> None:
    for prompt in PROMPTS:
        answer = await run(engine, prompt, temperature=temperature, seed=4, top_p=0.9, top_logprobs=5)
        plain = plain_logprobs(oracle, prompt, answer.token_ids, temperature or 1.0)
        sampled = plain.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
        assert answer.logprobs == pytest.approx(sampled.tolist(), abs=1e-4)
        assert answer.top_logprobs is not None
        for row, tops in zip(plain, answer.top_logprobs, strict=True):
            assert [top.logprob for top in tops] == pytest.approx(row.topk(5).values.tolist(), abs=1e-4)


async def test_a_session_is_read_once_in_every_family(engine: EmbeddedEngine, folder: Path) -> None:
    prompt = list(range(3, 60))
    first = await run(engine, prompt, temperature=0.0, max_tokens=5)
    longer = [*prompt, *first.token_ids, 9, 10]
    again = await run(engine, longer, temperature=0.0, max_tokens=5)
    assert (first.num_cached_tokens, again.num_cached_tokens) == (0, len(prompt) + 4)
    fork = await run(engine, [*longer[:30], 11], temperature=0.0, max_tokens=5)
    assert fork.num_cached_tokens == (0 if folder.name == "gemma2" else 30), "a window cannot be moved back"
    fresh = load_engine(folder, options())
    for known, asked in ((again, longer), (fork, [*longer[:30], 11])):
        assert (await run(fresh, asked, temperature=0.0, max_tokens=5)).token_ids == known.token_ids
    await fresh.close()


async def test_a_continued_answer_is_the_uncut_one(engine: EmbeddedEngine) -> None:
    uncut = await run(engine, PROMPTS[0], temperature=1.0, seed=7)
    assert (await run(engine, PROMPTS[0], temperature=1.0, seed=7)).token_ids == uncut.token_ids
    assert (await run(engine, PROMPTS[0], temperature=1.0, seed=8)).token_ids != uncut.token_ids
    for cut in (1, 9, 23):
        rest = await run(engine, [*PROMPTS[0], *uncut.token_ids[:cut]], temperature=1.0, seed=7, max_tokens=24 - cut)
        assert rest.token_ids == uncut.token_ids[cut:]


async def test_an_adapter_from_disk_answers_as_the_merged_model(folders: dict[str, Path], tmp_path: Path) -> None:
    for family in ("llama", "qwen3"):
        folder = folders[family]
        arch = Architecture.from_config(json.loads((folder / "config.json").read_text()))
        assert arch is not None
        adapter = AdapterWeights.random(
            arch, rank=4, alpha=8.0, device=torch.device("cpu"), dtype=torch.float32, seed=3
        )
        for i, parameter in enumerate(adapter.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)) * 0.2)
        adapter.save(tmp_path / family)
        oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        state = oracle.state_dict()
        saved = _lora_pairs(tmp_path / family)
        for name, (a, b) in saved.items():
            state[name] += 2.0 * b @ a
        oracle.load_state_dict(state)
        engine = load_engine(folder, options())
        publication = Publication(
            version="v1", weights=folder_ref(str(tmp_path / family), folder_sha256(tmp_path / family)), live=True
        )
        await engine.publish(publication)
        answer = await run(engine, PROMPTS[2], temperature=0.0)
        assert answer.version == "v1"
        plain = plain_logprobs(oracle, PROMPTS[2], answer.token_ids, 1.0)
        assert answer.logprobs == pytest.approx(plain.max(-1).values.tolist(), abs=1e-4)
        base = await whole(engine, ask(PROMPTS[2], version=BASE_VERSION, temperature=0.0, max_tokens=24))
        assert base.token_ids != answer.token_ids
        await engine.close()


def _lora_pairs(folder: Path) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """As peft writes them: module -> (A [r, in], B [out, r])."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "adapter_model.safetensors")
    prefix, a = "base_model.model.", ".lora_A.weight"
    names = [name for name in tensors if name.endswith(a)]
    assert names
    return {
        name.removeprefix(prefix).replace(a, ".weight"): (tensors[name], tensors[name.replace("lora_A", "lora_B")])
        for name in names
    }


async def test_full_weights_are_published_beside_the_base(folders: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    model = AutoModelForCausalLM.from_pretrained(folders["qwen3"], dtype=torch.float32).eval()
    torch.manual_seed(9)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(other)
    engine = load_engine(folders["qwen3"], options())
    await engine.publish(Publication(version="v1", weights=folder_ref(str(other), folder_sha256(other))))
    answer = await run(engine, PROMPTS[2], temperature=0.0)
    plain = plain_logprobs(model, PROMPTS[2], answer.token_ids, 1.0)
    assert answer.logprobs == pytest.approx(plain.max(-1).values.tolist(), abs=1e-4)
    with pytest.raises(EngineRefused, match="another architecture"):
        await engine.publish(
            Publication(version="v2", weights=folder_ref(str(folders["llama"]), folder_sha256(folders["llama"])))
        )
    model.model.layers[1].mlp.up_proj.weight.data[3, 5] = float("nan")
    model.save_pretrained(tmp_path / "broken")
    broken = Publication(version="v3", weights=folder_ref(str(tmp_path / "broken"), folder_sha256(tmp_path / "broken")))
    with pytest.raises(EngineRefused, match=r"layers\.1\.mlp\.up_proj\.weight .* not finite"):
        await engine.publish(broken)
    state = await engine.state()
    assert (state.versions, state.live_version) == (("v0", "v1"), "v1")
    await engine.close()


async def test_the_state_names_window_device_and_precision(tiny_model: Path) -> None:
    engine = load_engine(tiny_model, options(context_window=64, threads=1))
    state = await engine.state()
    assert (state.context_window, state.vocab_size, state.device, state.dtype) == (64, 512, "cpu", "float32")
    assert (state.model, state.versions, state.live_version) == (tiny_model.name, (BASE_VERSION,), BASE_VERSION)
    assert str(tiny_model / "model.safetensors") in Path("/proc/self/maps").read_text(), "mapped, not copied"
    await engine.close()


async def test_a_small_cache_makes_a_small_window_and_says_so(
    tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = load_engine(tiny_model, options(kv_bytes=70 * 2 * 2 * 2 * 16 * 4))
    assert "the cache holds 64 tokens" in caplog.text
    assert "engine.kv_bytes" in caplog.text
    assert (await engine.state()).context_window == 64
    with pytest.raises(EngineRefused, match="context window"):
        await run(engine, PROMPTS[2])
    answer = await run(engine, PROMPTS[0], max_tokens=200)
    assert (len(answer.token_ids), answer.finish_reason) == (64 - len(PROMPTS[0]), "length")
    await engine.close()


def damaged(source: Path, target: Path, **config: Any) -> Path:
    shutil.copytree(source, target)
    raw = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**raw, **config}))
    return target


def test_what_cannot_be_loaded_is_a_model_error(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_engine(tmp_path / "nowhere", options())
    with pytest.raises(ModelError, match="madeup"):
        load_engine(damaged(tiny_model, tmp_path / "a", model_type="madeup", architectures=["MadeUp"]), options())
    with pytest.raises(ModelError, match=r"lacks the tensor model\.layers\.2"):
        load_engine(damaged(tiny_model, tmp_path / "b", num_hidden_layers=3), options())
    pickled = damaged(tiny_model, tmp_path / "c")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(ModelError, match="neither model.safetensors nor"):
        load_engine(pickled, options())
    broken = damaged(tiny_model, tmp_path / "d")
    (broken / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(ModelError, match="no whole safetensors file"):
        load_engine(broken, options())


@pytest.mark.parametrize("raw", [[], {"speed": 1}])
def test_wrong_options_are_named(raw: Any) -> None:
    with pytest.raises(ConfigError, match="prefill_chunk"):
        EmbeddedOptions.from_json(raw)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a CUDA device")
def test_cuda_without_a_device_is_a_clear_error(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine\.device"):
        load_engine(tiny_model, options(device="cuda"))
    with pytest.raises(ConfigError, match=r"engine\.gpu_ids names 3, and torch sees no such GPU"):
        load_engine(tiny_model, options(device="auto", gpu_ids=(3,)))


async def test_the_embedded_model_answers_as_transformers_does_with_either_kind_of_weights() -> None:
    folder = resolve_model(ModelConfig()).path
    oracle: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = [1, 9690, 198, 28120, 359, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
    with torch.inference_mode():
        expected = oracle.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), do_sample=False, max_new_tokens=12
        )[0, len(prompt) :].tolist()
    for weights, precision in (("float32", "float32"), ("auto", "float32 on quantised weights")):
        engine = load_engine(folder, options(weights=weights, kv_bytes=2**28))
        assert (await engine.state()).dtype == precision
        answer = await whole(engine, replace(ask(prompt, temperature=0.0, max_tokens=12), stop_token_ids=(2,)))
        assert list(answer.token_ids) == expected
        plain = plain_logprobs(oracle, prompt, answer.token_ids, 1.0).max(-1).values
        assert answer.logprobs == pytest.approx(plain.tolist(), abs=2e-4)
        await engine.close()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
async def test_a_version_that_left_memory_is_proved_by_its_bytes_before_it_answers_again(
    family: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Real checkpoints of two people, and room for one: the same answers as before, and none from changed bytes."""
    engine = load_engine(folders[family], options(max_adapters=1))
    arch = Architecture.from_config(json.loads((folders[family] / "config.json").read_text()))
    assert arch is not None
    published: list[Publication] = []
    for number in (1, 2):
        made = AdapterWeights.random(
            arch, rank=4, alpha=8.0, seed=number, b_std=0.2, device=torch.device("cpu"), dtype=torch.float32
        )
        made.save(tmp_path / f"v{number}")
        weights = folder_ref(str(tmp_path / f"v{number}"), folder_sha256(tmp_path / f"v{number}"))
        published.append(Publication(version=f"v{number}", weights=weights, live=False))

    async def greedy(label: str) -> tuple[float, ...]:
        return (await whole(engine, ask(PROMPTS[0], version=label, max_tokens=6, temperature=0.0, salt=""))).logprobs

    said: dict[str, tuple[float, ...]] = {}
    for one in published:
        await engine.publish(one)
        said[one.version] = await greedy(one.version)
    assert said["v1"] != said["v2"]
    for label in ("v1", "v2", "v1"):
        assert engine.in_memory != (label,)
        assert await greedy(label) == pytest.approx(said[label], abs=1e-5)
        assert engine.in_memory == (label,)
    shutil.copy(tmp_path / "v1" / "adapter_model.safetensors", tmp_path / "v2" / "adapter_model.safetensors")
    with pytest.raises(EngineRefused, match="checksum") as refusal:
        await greedy("v2")
    assert refusal.value.code == "checksum_mismatch"
    assert await greedy("v1") == pytest.approx(said["v1"], abs=1e-5)
    await engine.close()
