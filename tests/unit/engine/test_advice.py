"""Which engine doctor recommends: by what the machine has, what the model is, and measured figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.doctor import probes
from openclaw_rl.config import EngineConfig
from openclaw_rl.engine.advice import MEASURED, Advice, advise
from openclaw_rl.model.files import ModelFiles, inspect_folder
from tests.tiny import build_tiny_model

GIB = 1 << 30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    folder = build_tiny_model(tmp_path_factory.mktemp("m") / "tiny")
    return inspect_folder("tiny", folder, tokenizer_path=folder)


def asked(model: ModelFiles | None, *gpus: int, is_ours: bool | None = True, **settings: Any) -> Advice:
    return advise(EngineConfig.model_validate(settings), model, gpus, is_ours=is_ours)


def test_a_cpu_is_for_the_embedded_engine_and_the_figures_say_why(model: ModelFiles) -> None:
    for found in (asked(model), asked(None, is_ours=None), asked(model, 80 * GIB, device="cpu")):
        assert found.remedy == ""
        assert f"{MEASURED.embedded_8:.0f} tokens/s for eight at once and {MEASURED.vllm_8:.0f} in vLLM" in found.text
    assert MEASURED.embedded_8 > MEASURED.vllm_8, "or the advice is another"
    assert MEASURED.embedded_ttft < MEASURED.vllm_ttft
    found = asked(model, type="vllm")
    assert "engine.type=embedded" in found.remedy
    assert asked(model, type="vllm", url="http://a:1").remedy == "", "what runs elsewhere is no matter of this machine"


def test_a_model_of_others_is_for_vllm(model: ModelFiles) -> None:
    for gpus in ((), (80 * GIB,)):
        found = asked(model, *gpus, is_ours=False)
        assert "engine.type=vllm" in found.remedy
        assert model.architecture in found.text
        assert asked(model, *gpus, is_ours=False, type="vllm").remedy == ""


def test_one_gpu_is_for_the_embedded_engine_until_many_ask_at_once(model: ModelFiles) -> None:
    found = asked(model, 80 * GIB)
    assert found.remedy == ""
    assert "1,327" in found.text
    assert "replicas" not in found.text
    assert "engine.replicas=2 engine.gpu_ids=0,1" in asked(model, 80 * GIB, 80 * GIB).text
    assert asked(model, 80 * GIB, max_active=32).remedy == ""
    assert "engine.type=vllm" in asked(model, 80 * GIB, max_active=33).remedy


def test_weights_that_one_gpu_does_not_hold_are_for_vllm_over_several(model: ModelFiles) -> None:
    bytes_of_gpu = model.weight_bytes // 2
    found = asked(model, *[bytes_of_gpu] * 8)
    assert found.remedy == "set engine.type=vllm engine.gpu_ids=0,1,2,3 engine.vllm.tensor_parallel=4"
    assert "take 4 GPUs" in asked(model, bytes_of_gpu).remedy
    assert asked(model, int(model.weight_bytes / 0.79)).remedy == ""


def test_memory_is_read_from_what_the_driver_lists() -> None:
    assert probes.gpu_bytes(["NVIDIA H200, 143771 MiB", "Odd, [N/A]"]) == [143771 << 20]


def test_a_folder_tells_whether_the_network_is_ours(model: ModelFiles, tmp_path: Path) -> None:
    assert probes.is_ours(model) is True
    (tmp_path / "config.json").write_text('{"architectures": ["OtherForCausalLM"]}')
    assert probes.is_ours(replace(model, path=tmp_path)) is False
    assert probes.is_ours(None) is None
