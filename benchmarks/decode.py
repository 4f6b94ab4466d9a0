"""Tokens per second of the embedded engine against `transformers.generate` and against the memory's speed.

    python benchmarks/decode.py [--json] [--quick] [--opponents]

On a CPU: the embedded model, float32 unless a figure says quantised, the same threads on every side, rounds in turn so
that what else the machine does hits all of them. The floor is one read of all weights for each token at the best
speed at which this process reads 1 GiB. `--opponents` also runs llama.cpp and vLLM (`opponents.py`), which it installs
once: 3.5 GB. On a GPU: see `gpu_decode.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.embedded import architecture, embedded_folder, has_gpu, open_engine, parser, prompt_ids, show, stream
from openclaw_rl.engine.embedded.engine import EmbeddedEngine

if TYPE_CHECKING:
    from benchmarks.opponents import Race

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
    "llama_cpp_tok_s": ("llama.cpp, one stream, the same quantised weights, best round, tokens/s", ""),
    "quantised_best_tok_s": ("  ours, best round", ""),
    "quantised_vs_llama_cpp": ("  ours over theirs", "aim 1"),
    "vllm_cpu_streams8_tok_s": ("vLLM, eight streams, float32, best round, tokens/s together", ""),
    "streams8_best_tok_s": ("  ours, on the better weights, best round", ""),
    "streams8_vs_vllm_cpu": ("  ours over theirs", "aim 1"),
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


def prompts(num: int, seed: int) -> list[list[int]]:
    return [prompt_ids(architecture(), PROMPT, 100 * seed + i) for i in range(num)]


def tokens_per_s(arrivals: Sequence[Sequence[float]]) -> float:
    """Of all streams together, from the first moment at which all of them write."""
    all_write = max(of_one[0] for of_one in arrivals)
    late = [at for of_one in arrivals for at in of_one if at > all_write]
    return len(late) / (max(late) - all_write)


async def ours(engine: EmbeddedEngine, num: int, seed: int) -> float:
    answers = await asyncio.gather(*(stream(engine, prompt, max_tokens=ANSWER) for prompt in prompts(num, seed)))
    return tokens_per_s([answer.arrivals for answer in answers])


async def measure(*, num_rounds: int, threads: int | None, race: Race) -> dict[str, float]:
    speed = bandwidth_gb_s()
    generate = Generate()
    dense = open_engine(threads=threads, weights="float32")
    quantised = open_engine(threads=threads, weights="quantised")
    rounds: list[dict[str, float]] = []
    for turn in range(num_rounds + 1):
        measured = {
            "generate_tok_s": await asyncio.to_thread(generate.tokens_per_s, turn),
            "batch1_tok_s": await ours(dense, 1, turn),
            "quantised_tok_s": await ours(quantised, 1, turn),
            "streams8_tok_s": await ours(dense, NUM_STREAMS, turn),
            "quantised_streams8_tok_s": await ours(quantised, NUM_STREAMS, turn),
        }
        answers = await race.answers(partial(prompts, seed=turn), num_tokens=ANSWER)
        rounds.append(measured | {key: tokens_per_s(arrivals) for key, arrivals in answers.items()})
    await dense.close()
    await quantised.close()
    # The first round warms up. An opponent that failed on the way is not in the last one.
    found = {name: median(measured[name] for measured in rounds[1:]) for name in rounds[-1]}
    best = {name: max(measured[name] for measured in rounds[1:]) for name in rounds[-1]}
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
        **against_opponents(best),
    }


def against_opponents(best: Mapping[str, float]) -> dict[str, float]:
    """Ours over theirs, of both the best round: llama.cpp's threads wait for each other without letting go of the core.

    So whatever else wants a core for a moment costs it a multiple: 11 to 98 tokens/s were seen within a minute.
    """
    found: dict[str, float] = {}
    if (llama_cpp := best.get("llama_cpp_tok_s")) is not None:
        ours = best["quantised_tok_s"]
        found |= {
            "llama_cpp_tok_s": llama_cpp,
            "quantised_best_tok_s": ours,
            "quantised_vs_llama_cpp": ours / llama_cpp,
        }
    if (vllm_cpu := best.get("vllm_cpu_streams8_tok_s")) is not None:
        ours = max(best["streams8_tok_s"], best["quantised_streams8_tok_s"])
        found |= {
            "vllm_cpu_streams8_tok_s": vllm_cpu,
            "streams8_best_tok_s": ours,
            "streams8_vs_vllm_cpu": ours / vllm_cpu,
        }
    return found


async def run(arguments: argparse.Namespace) -> dict[str, float]:
    # Here: a machine with a GPU may have torch and nothing else of ours.
    from benchmarks.opponents import LlamaCpp, Race, VllmCpu

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    async with Race() as race:
        for opponent in (LlamaCpp, VllmCpu) if arguments.opponents else ():
            await race.enter(opponent(embedded_folder()), threads=torch.get_num_threads())
        return await measure(num_rounds=1 if arguments.quick else 5, threads=arguments.threads, race=race)


def main() -> int:
    options = parser("Measure decoding.")
    options.add_argument("--opponents", action="store_true", help="also llama.cpp and vLLM on the CPU, installed once")
    arguments = options.parse_args()
    began_at = time.monotonic()
    if has_gpu():
        if arguments.opponents:
            options.error("--opponents compares on a CPU; on a GPU there is none to compare with here")
        from benchmarks import gpu_decode

        return gpu_decode.main()
    found = asyncio.run(run(arguments))
    found["seconds"] = time.monotonic() - began_at
    show(FIGURES, found, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
