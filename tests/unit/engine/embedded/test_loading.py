"""The embedded model against transformers itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from openclaw_rl.engine.embedded.model import EmbeddedOptions, Model
from openclaw_rl.engine.wire import merge
from openclaw_rl.errors import ConfigError, EngineRefused, ModelError
from openclaw_rl.types import BASE_VERSION, Delta
from tests.tiny import CONTEXT_WINDOW, VOCAB_SIZE
from tests.unit.engine.prompts import ask

PROMPTS = [[1, 300, 20, 30, 40], [1, 7], list(range(3, 90)), [500]]


@pytest.fixture(scope="module")
def oracle(tiny_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    return Model(tiny_model, EmbeddedOptions(device="cpu", prefill_chunk=16))


def run(model: Model, prompt: Sequence[int], stop: tuple[int, ...] = (), **sampling: Any) -> Delta:
    """The whole answer, at most 24 tokens unless `sampling` says otherwise."""
    request = ask(prompt, **{"max_tokens": 24, **sampling})
    generation = model.begin(request, BASE_VERSION, request.sampling.max_tokens)
    generation.stop_token_ids = frozenset(stop)
    deltas: list[Delta] = []
    while not deltas or deltas[-1].finish_reason is None:
        delta = model.advance(generation)
        deltas += [delta] if delta is not None else []
    return merge(deltas)


def plain_logprobs(oracle: Any, prompt: Sequence[int], answer: Sequence[int], temperature: float) -> torch.Tensor:
    """[answer, vocabulary] of one forward pass over everything."""
    with torch.no_grad():
        logits = oracle(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, dim=-1)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_greedy_is_what_transformers_generates(oracle: Any, model: Model, prompt: list[int], penalty: float) -> None:
    expected = oracle.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt)),
        do_sample=False,
        max_new_tokens=24,
        repetition_penalty=penalty,
        eos_token_id=None,
        pad_token_id=0,
    )[0, len(prompt) :].tolist()
    answer = run(model, prompt, temperature=0.0, repetition_penalty=penalty)
    assert list(answer.token_ids) == expected
    assert answer.finish_reason == "length"


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_logprobs_are_those_of_a_plain_forward_pass(oracle: Any, model: Model, temperature: float) -> None:
    for prompt in PROMPTS:
        answer = run(model, prompt, temperature=temperature, seed=4, top_p=0.9, top_logprobs=5)
        plain = plain_logprobs(oracle, prompt, answer.token_ids, temperature or 1.0)
        sampled = plain.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
        assert answer.logprobs == pytest.approx(sampled.tolist(), abs=1e-4)
        assert answer.top_logprobs is not None
        for row, tops in zip(plain, answer.top_logprobs, strict=True):
            assert [top.logprob for top in tops] == pytest.approx(row.topk(5).values.tolist(), abs=1e-4)
            assert [row[top.token_id].item() for top in tops] == pytest.approx([t.logprob for t in tops], abs=1e-4)


def test_a_seed_gives_the_same_answer_again(model: Model) -> None:
    first, again, other = (run(model, PROMPTS[0], temperature=1.0, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first.token_ids != other.token_ids


def test_a_continued_answer_is_the_uncut_one(model: Model) -> None:
    uncut = run(model, PROMPTS[0], temperature=1.0, seed=7)
    for cut in (1, 9, 23):
        rest = run(model, [*PROMPTS[0], *uncut.token_ids[:cut]], temperature=1.0, seed=7, max_tokens=24 - cut)
        assert rest.token_ids == uncut.token_ids[cut:]


@pytest.mark.parametrize("chunk", [1, 5, 86, 87, 500])
def test_a_prompt_may_be_read_in_pieces(tiny_model: Path, model: Model, chunk: int) -> None:
    other = Model(tiny_model, EmbeddedOptions(device="cpu", prefill_chunk=chunk))
    expected, answer = run(model, PROMPTS[2], temperature=0.0), run(other, PROMPTS[2], temperature=0.0)
    assert answer.token_ids == expected.token_ids
    assert answer.logprobs == pytest.approx(expected.logprobs, abs=1e-4)


def test_each_piece_of_a_prompt_is_one_step(model: Model) -> None:
    generation = model.begin(ask(PROMPTS[2]), BASE_VERSION, 3)
    steps = [model.advance(generation) for _ in range(8)]
    assert [step is not None for step in steps] == [False] * 5 + [True] * 3
    assert steps[-1] is not None
    assert steps[-1].finish_reason == "length"


def test_a_stop_id_ends_the_answer_and_belongs_to_it(model: Model) -> None:
    uncut = run(model, PROMPTS[0], temperature=0.0).token_ids
    stop = next(token for i, token in enumerate(uncut) if i > 2 and token not in uncut[:i])
    answer = run(model, PROMPTS[0], stop=(stop, 511), temperature=0.0)
    assert answer.token_ids == uncut[: uncut.index(stop) + 1]
    assert answer.finish_reason == "stop"


def test_ids_outside_the_vocabulary_are_refused(model: Model) -> None:
    with pytest.raises(EngineRefused, match=str(VOCAB_SIZE)):
        model.begin(ask([1, VOCAB_SIZE]), BASE_VERSION, 1)
    for token in (600, -1):
        with pytest.raises(EngineRefused, match=str(token)):
            model.begin(ask([1], logit_bias={5: 1.0, token: 1.0}), BASE_VERSION, 1)


def test_the_state_names_window_device_and_precision(tiny_model: Path, model: Model) -> None:
    assert (model.state.context_window, model.state.device, model.state.dtype) == (CONTEXT_WINDOW, "cpu", "float32")
    assert model.state.model == tiny_model.name
    assert model.state.versions == (BASE_VERSION,)
    smaller = Model(tiny_model, EmbeddedOptions(device="cpu", context_window=64, threads=1))
    assert smaller.state.context_window == 64


def test_float32_weights_are_mapped_not_copied(model: Model, tiny_model: Path) -> None:
    maps = Path("/proc/self/maps").read_text()
    assert str(tiny_model / "model.safetensors") in maps


def damaged(source: Path, target: Path, **config: Any) -> Path:
    shutil.copytree(source, target)
    raw = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**raw, **config}))
    return target


def test_what_cannot_be_loaded_is_a_model_error(tiny_model: Path, tmp_path: Path) -> None:
    options = EmbeddedOptions(device="cpu")
    with pytest.raises(ModelError, match=r"no config\.json"):
        Model(tmp_path / "nowhere", options)
    with pytest.raises(ModelError, match="madeup"):
        Model(damaged(tiny_model, tmp_path / "a", model_type="madeup", architectures=["MadeUp"]), options)
    with pytest.raises(ModelError, match="lacks weights"):
        Model(damaged(tiny_model, tmp_path / "b", num_hidden_layers=3), options)
    pickled = damaged(tiny_model, tmp_path / "c")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot load"):
        Model(pickled, options)
    broken = damaged(tiny_model, tmp_path / "d")
    (broken / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(ModelError, match="cannot load"):
        Model(broken, options)


@pytest.mark.parametrize("raw", [[], {"speed": 1}])
def test_wrong_options_are_named(raw: Any) -> None:
    with pytest.raises(ConfigError, match="prefill_chunk"):
        EmbeddedOptions.from_json(raw)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a CUDA device")
def test_cuda_without_a_device_is_a_clear_error(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine\.device"):
        Model(tiny_model, EmbeddedOptions(device="cuda"))
