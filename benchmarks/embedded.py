"""What the benchmarks of the embedded engine share: which model runs where, streams with their times, and the table.

Without a GPU the embedded model is measured, as a user runs it. On a GPU a model of the shape of Qwen3-4B with random
weights is: speed does not depend on what they say, and nothing has to be fetched.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the engine's worker sets it; before torch is loaded

import torch
from torch import Tensor

from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.engine.embedded.loading import assemble, load_engine, runner_for
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.model.architecture import MODULES, Architecture, Rope
from openclaw_rl.model.network import DenseLinear, LayerWeights, Network, Weights
from openclaw_rl.types import GenerateRequest, Sampling

QWEN3_4B = Architecture(
    family="qwen3",
    num_layers=36,
    hidden_size=2560,
    mlp_size=9728,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=151_936,
    rms_eps=1e-6,
    rope=Rope(theta=5_000_000.0),
    qk_norm=True,
    tied_head=True,
    context_window=40_960,
)

Figures = Mapping[str, tuple[str, str]]
"""Every figure, what it is called in the table, and the bar it has to pass where there is one."""


def has_gpu() -> bool:
    return torch.cuda.is_available()


def embedded_folder() -> Path:
    """The embedded model, fetched if it has to be."""
    # Here: a machine with a GPU measures another model, and may have torch and nothing else of ours.
    from rich.console import Console

    from openclaw_rl.config import ModelConfig
    from openclaw_rl.model.files import resolve_model

    return resolve_model(ModelConfig(), console=Console(stderr=True)).path


def architecture() -> Architecture:
    """Of the model that is measured here."""
    if has_gpu():
        return QWEN3_4B
    found = Architecture.from_config(json.loads((embedded_folder() / "config.json").read_text()))
    assert found is not None
    return found


def open_engine(**options: object) -> EmbeddedEngine:
    """The engine as `openclaw-rl up` would run it here."""
    chosen = EmbeddedOptions(**options)  # type: ignore[arg-type]
    if not has_gpu():
        return load_engine(embedded_folder(), chosen)
    device = torch.device("cuda")
    network = random_network(QWEN3_4B, device=device, dtype=torch.bfloat16)
    return assemble(
        runner_for(network, max_active=chosen.max_active),
        QWEN3_4B,
        chosen,
        name="random",
        device=device,
        dtype=torch.bfloat16,
    )


def random_network(arch: Architecture, *, device: torch.device, dtype: torch.dtype) -> Network:
    """Weights of the usual size, so that nothing overflows."""
    torch.manual_seed(0)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, device=device, dtype=dtype) * 0.02

    def ones(size: int) -> Tensor:
        return torch.ones(size, device=device, dtype=dtype)

    def projections() -> dict[str, DenseLinear]:
        parts = {module: arch.projections(module) for module in MODULES}
        return {
            module: DenseLinear(matrix(sum(part.out_features for part in of), of[0].in_features))
            for module, of in parts.items()
        }

    embedding = matrix(arch.vocab_size, arch.hidden_size)
    layers = tuple(
        LayerWeights(
            input_norm=ones(arch.hidden_size),
            q_norm=ones(arch.head_dim) if arch.qk_norm else None,
            k_norm=ones(arch.head_dim) if arch.qk_norm else None,
            post_norm=ones(arch.hidden_size),
            **projections(),
        )
        for _ in range(arch.num_layers)
    )
    weights = Weights(
        embedding=embedding, layers=layers, final_norm=ones(arch.hidden_size), head=DenseLinear(embedding)
    )
    return Network(arch, weights)


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer: when each of its tokens arrived, in seconds after it was asked for."""

    token_ids: Sequence[int]
    arrivals: Sequence[float]
    num_cached: int
    version: str

    @property
    def ttft_s(self) -> float:
        return self.arrivals[0]

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.arrivals, self.arrivals[1:], strict=False)]


async def stream(
    engine: EmbeddedEngine,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    name: str = "bench",
    version: str | None = None,
    salt: str = "bench",
    num_shareable: int = 0,
) -> Stream:
    """A greedy answer of exactly so many tokens."""
    request = GenerateRequest(
        request_id=name,
        token_ids=list(prompt),
        sampling=Sampling(max_tokens=max_tokens, temperature=0.0),
        version=version,
        cache_salt=salt,
        num_shareable=num_shareable,
    )
    began_at = time.perf_counter()
    tokens, arrivals, cached, answered_by = list[int](), list[float](), 0, ""
    async with aclosing(engine.generate(request)) as deltas:
        async for delta in deltas:
            now = time.perf_counter() - began_at
            tokens += delta.token_ids
            arrivals += [now] * len(delta.token_ids)
            cached, answered_by = delta.num_cached_tokens, delta.version
    return Stream(tokens, arrivals, cached, answered_by)


def prompt_ids(arch: Architecture, size: int, seed: int = 0) -> list[int]:
    """Random ordinary tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1000, arch.vocab_size, (size,), generator=generator).tolist()


def machine() -> str:
    """What the figures were measured on."""
    if has_gpu():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}"


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    made.add_argument("--quick", action="store_true", help="fewer repetitions; rougher figures")
    made.add_argument("--threads", type=int, default=None, help="CPU threads, of every side")
    return made


def show(figures: Figures, found: Mapping[str, float], *, as_json: bool) -> None:
    """The table, and the JSON object as the last line if it is wanted."""
    print(f"on {machine()}")
    for name, (label, bar) in figures.items():
        if name in found:
            print(f"{name:28} {found[name]:>12,.3f}  {label}{f'  ({bar})' if bar else ''}")
    sys.stdout.flush()
    if as_json:
        print(json.dumps({name: round(value, 4) for name, value in found.items()}))
