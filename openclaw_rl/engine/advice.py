"""The machine, the model and the settings -> which engine is the better one here, and why, in measured figures.

`MEASURED` is where the figures stand; docs/benchmarks.md and docs/scaling.md say how each was taken. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.config import EngineConfig
from openclaw_rl.model.files import ModelFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """What decides between engines. Tokens are those of all streams together, times are milliseconds."""

    embedded_8: float
    """Eight streams by one adapter on two cores, by the embedded engine as it is by default."""
    vllm_8: float
    embedded_ttft: float
    """To the first token at turn twenty of a session."""
    vllm_ttft: float
    gpu_1: float
    """One stream of the embedded engine on an H200, a model of four billion weights."""
    gpu_8: float
    gpu_together: int
    """Answers that it decodes in one CUDA graph."""


MEASURED = EngineFigures(
    embedded_8=194,
    vllm_8=60,
    embedded_ttft=90,
    vllm_ttft=159,
    gpu_1=342,
    gpu_8=1327,
    gpu_together=32,
)
_SHARE_OF_GPU = 0.8
"""What of a GPU's memory weights may take: conversations need the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Which engine, and why. `remedy` is what to set where the settings choose another; empty if they do not."""

    text: str
    remedy: str = ""


def advise(engine: EngineConfig, model: ModelFiles | None, gpu_bytes: Sequence[int], *, is_ours: bool | None) -> Advice:
    """`gpu_bytes`: the memory of each GPU. `is_ours`: our own network computes the model; None: it is not here yet."""
    if engine.device == "cpu" or not gpu_bytes:
        return _on_cpu(engine, model, is_ours=is_ours)
    return _on_gpus(engine, model, gpu_bytes, is_ours=is_ours)


def _on_cpu(engine: EngineConfig, model: ModelFiles | None, *, is_ours: bool | None) -> Advice:
    if model is not None and is_ours is False:
        text = f"the embedded engine runs {model.architecture} through transformers, one request after the other"
        if engine.type == "vllm":
            return Advice(text=f"vLLM: {text}")
        return Advice(text=text, remedy="for several people at once try engine.type=vllm (`make engine-vllm`)")
    seen = MEASURED
    text = (
        f"the embedded engine: on two cores a version wrote {seen.embedded_8:.0f} tokens/s for eight at once and "
        f"{seen.vllm_8:.0f} in vLLM, and turn twenty began after {seen.embedded_ttft:.0f} ms instead of "
        f"{seen.vllm_ttft:.0f}"
    )
    if engine.type == "vllm" and engine.url is None and not engine.urls:
        return Advice(text=text, remedy="set engine.type=embedded, unless it is vLLM that you want to try")
    return Advice(text=text)


def _on_gpus(
    engine: EngineConfig, model: ModelFiles | None, gpu_bytes: Sequence[int], *, is_ours: bool | None
) -> Advice:
    if engine.type in ("vllm", "sglang"):
        return Advice(text=f"{engine.type}: for several GPUs, many people at once, and models that are not ours")
    if model is not None and (wanted := _num_gpus(model.weight_bytes, min(gpu_bytes))) > 1:
        weights = f"{model.weight_bytes / 1e9:.1f} GB of weights"
        text = f"{weights} do not fit into one GPU, and the embedded engine serves on one"
        if wanted > len(gpu_bytes):
            return Advice(
                text=text, remedy=f"they take {wanted} GPUs with engine.type=vllm; or choose a smaller model.name"
            )
        numbers = ",".join(map(str, range(wanted)))
        return Advice(
            text=text, remedy=f"set engine.type=vllm engine.gpu_ids={numbers} engine.vllm.tensor_parallel={wanted}"
        )
    if model is not None and is_ours is False:
        text = f"the embedded engine runs {model.architecture} through transformers, one request after the other"
        return Advice(text=text, remedy="vLLM computes requests together: set engine.type=vllm")
    if engine.max_active > MEASURED.gpu_together:
        text = (
            f"engine.max_active is {engine.max_active}, and the embedded engine decodes {MEASURED.gpu_together} "
            "answers in one step of the GPU"
        )
        return Advice(text=text, remedy="for more people at once set engine.type=vllm")
    text = (
        f"the embedded engine: on an H200 it wrote {MEASURED.gpu_1:,.0f} tokens/s for one and {MEASURED.gpu_8:,.0f} "
        "for eight with a 4B model; vLLM was not measured on GPUs"
    )
    if len(gpu_bytes) > 1 and engine.replicas == 1:
        numbers = ",".join(map(str, range(len(gpu_bytes))))
        text += f"; {len(gpu_bytes)} of it answer as one with engine.replicas={len(gpu_bytes)} engine.gpu_ids={numbers}"
    return Advice(text=text)


def _num_gpus(weight_bytes: int, gpu_bytes: int) -> int:
    """How many share the weights: layers are spread over a power of two."""
    num = 1
    while weight_bytes > num * gpu_bytes * _SHARE_OF_GPU:
        num *= 2
    return num
