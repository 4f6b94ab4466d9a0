"""Tokens per second of the embedded engine against `transformers.generate` and against the memory's speed.

    python benchmarks/decode.py [--json] [--quick]

On a CPU: the embedded model, float32 unless a figure says quantised, the same threads on every side, rounds in turn so
that what else the machine does hits all of them. The floor is one read of all weights for each token at the best
speed at which this process reads 1 GiB. On a GPU: see `gpu_decode.py`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.engines import architecture, embedded_folder, has_gpu, open_engine, parser, prompt_ids, show, stream
from openclaw_rl.engine.embedded.engine import EmbeddedEngine

PROMPT, ANSWER, NUM_STREAMS = 64, 48, 8

FIGURES = {
    "bandwidth_gb_s": ("reading 1 GiB of float32, best of 5, GB/s", ""),
    "floor_tok_s": ("  tokens/s if a token cost one read of the weights", ""),
    "generate_tok_s": ("transformers.generate, one after the other, tokens/s", ""),
    "batch1_tok_s": ("one stream, float32, tokens/s", ""),
    "batch1_vs_generate": ("  against generate", ">= 1.1"),
    "share_of_floor": ("  share of the floor", "aim 0.85"),
    "generate_share_of_floor": ("  generate's share of the floor", ""),
    "streams8_tok_s": ("eight streams, float32, tokens/s together", ""),
    "streams8_vs_generate": ("  against generate, one after the other", ">= 3"),
    "quantised_tok_s": ("one stream, quantised weights, tokens/s", ""),
    "quantised_vs_generate": ("  against generate in float32", "aim 2.5"),
    "quantised_streams8_tok_s": ("eight streams, quantised weights, tokens/s together", ""),
    "seconds": ("length of the run, s", ""),
}


def bandwidth_gb_s() -> float:
    """Reads 1 GiB with all threads; the sum makes sure that it is read."""
    block = torch.ones(2**28)
    best = min(_timed(block.sum) for _ in range(5))
    return 2**30 / best / 1e9


def weight_bytes() -> int:
    """Of one token in float32: all of the file, whose embedding is also the head."""
    return (embedded_folder() / "model.safetensors").stat().st_size


def _timed(work: Callable[[], object]) -> float:
    began_at = time.perf_counter()
    work()
    return time.perf_counter() - began_at


class Generate:
    """The opponent, as its own users run it: `generate` with its default cache and attention."""

    def __init__(self) -> None:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        self._model: Any = AutoModelForCausalLM.from_pretrained(embedded_folder(), dtype=torch.float32).eval()

    def tokens_per_s(self, seed: int) -> float:
        """Of the tokens after the first, which waits for the prompt."""
        ids = torch.tensor([prompt_ids(architecture(), PROMPT, seed)])

        def run(size: int) -> float:
            with torch.inference_mode():
                return _timed(
                    lambda: self._model.generate(
                        ids,
                        attention_mask=torch.ones_like(ids),
                        do_sample=False,
                        min_new_tokens=size,
                        max_new_tokens=size,
                        pad_token_id=0,
                    )
                )

        return (ANSWER - 1) / (run(ANSWER) - run(1))


async def streams_tokens_per_s(engine: EmbeddedEngine, num: int, seed: int) -> float:
    """Of all streams together, from the first moment at which all of them write."""
    arch = architecture()
    answers = await asyncio.gather(
        *(stream(engine, prompt_ids(arch, PROMPT, 100 * seed + i), max_tokens=ANSWER) for i in range(num))
    )
    all_write = max(answer.ttft_s for answer in answers)
    late = [at for answer in answers for at in answer.arrivals if at > all_write]
    return len(late) / (max(late) - all_write)


async def measure(*, num_rounds: int, threads: int | None) -> dict[str, float]:
    if threads is not None:
        torch.set_num_threads(threads)
    speed = bandwidth_gb_s()
    generate = Generate()
    dense = open_engine(threads=threads, weights="float32")
    quantised = open_engine(threads=threads, weights="quantised")
    sides: dict[str, list[float]] = {
        name: []
        for name in ("generate_tok_s", "batch1_tok_s", "streams8_tok_s", "quantised_tok_s", "quantised_streams8_tok_s")
    }
    for turn in range(num_rounds + 1):
        measured = {
            "generate_tok_s": await asyncio.to_thread(generate.tokens_per_s, turn),
            "batch1_tok_s": await streams_tokens_per_s(dense, 1, turn),
            "quantised_tok_s": await streams_tokens_per_s(quantised, 1, turn),
            "streams8_tok_s": await streams_tokens_per_s(dense, NUM_STREAMS, turn),
            "quantised_streams8_tok_s": await streams_tokens_per_s(quantised, NUM_STREAMS, turn),
        }
        if turn:  # the first round warms up
            for name, value in measured.items():
                sides[name].append(value)
    await dense.close()
    await quantised.close()
    found = {name: median(values) for name, values in sides.items()}
    floor = speed * 1e9 / weight_bytes()
    return {
        "bandwidth_gb_s": speed,
        "floor_tok_s": floor,
        **found,
        "batch1_vs_generate": found["batch1_tok_s"] / found["generate_tok_s"],
        "share_of_floor": found["batch1_tok_s"] / floor,
        "generate_share_of_floor": found["generate_tok_s"] / floor,
        "streams8_vs_generate": found["streams8_tok_s"] / found["generate_tok_s"],
        "quantised_vs_generate": found["quantised_tok_s"] / found["generate_tok_s"],
    }


def main() -> int:
    arguments = parser("Measure decoding.").parse_args()
    began_at = time.monotonic()
    if has_gpu():
        from benchmarks import gpu_decode

        return gpu_decode.main()
    found = asyncio.run(measure(num_rounds=1 if arguments.quick else 5, threads=arguments.threads))
    found["seconds"] = time.monotonic() - began_at
    show(FIGURES, found, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
