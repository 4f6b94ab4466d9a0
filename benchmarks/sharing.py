"""What it costs that users share neither cache nor adapter: 32 people, each with what is theirs.

    python benchmarks/sharing.py [--json] [--quick] [--part heads|adapters] [--users N] [--head TOKENS] [--device cuda]

**Heads**, the cache: people whose agents send the same long head, apart and with shared heads.

Each user's agent opens with the same system prompt and tools, then 40 tokens of the user's own, and goes on once. They
come one after the other, so that the first has been read when the second comes. `apart` is the default
(`engine.share_heads` off): every user's head is read anew. `shared` is the same with it on. Counted are the tokens that
went through the model. The cache has room for all, as nothing else is to be measured.

There are 32 users, and on a GPU the head has 11,000 tokens, the size of OpenClaw's. On a CPU it is scaled down to a
sixteenth. `--quick` takes 8 users, and a thirty-second on a CPU. The ratios grow with the users, and with the head
beside a user's own words.

**Adapters**: all users write at once, each on a version of his own (rank 16, all projections), and then all on one.
Rounds of both alternate. The engine computes as many answers at once as there are users.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

import torch
from torch import Tensor

from benchmarks.embedded import architecture, has_gpu, open_engine, parser, prompt_ids, show, stream
from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.engine.embedded.runner import NetworkRunner, SequencePiece
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.types import BASE_VERSION, Publication, WeightsRef

HEAD, USERS, OWN, ANSWER = 11_000, 32, 40, 4
RANK, WRITTEN, WRITTEN_ON_GPU = 16, 24, 192
"""On a GPU prompts are read one a step while others write: the first has written a token for each of them by then."""

FIGURES = {
    "users": ("users", ""),
    "head_tokens": ("tokens of the head that all send", ""),
    "tokens_apart": ("tokens computed, apart", ""),
    "tokens_shared": ("tokens computed, heads shared", ""),
    "tokens_apart_over_shared": ("  apart over shared", ""),
    "seconds_apart": ("time of all requests, apart, s", ""),
    "seconds_shared": ("time of all requests, heads shared, s", ""),
    "seconds_apart_over_shared": ("  apart over shared", ""),
    "ttft_first_apart_s": ("a user's first turn: time to first token, apart, s (median)", ""),
    "ttft_first_shared_s": ("  heads shared", ""),
    "ttft_next_apart_s": ("a user's next turn: time to first token, apart, s (median)", ""),
    "ttft_next_shared_s": ("  heads shared", ""),
    "one_adapter_tok_s": ("all users write at once, one adapter for all, tokens/s together", ""),
    "mixed_adapters_tok_s": ("  an adapter for each", ""),
    "mixed_adapters_32": ("  mixed over one", ">= 0.6, aim 0.7"),
    "no_adapter_tok_s": ("  no adapter, tokens/s together", ""),
    "seconds": ("length of the run, s", ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All users with one way of sharing."""

    num_tokens: int
    seconds: float
    firsts_s: Sequence[float]
    nexts_s: Sequence[float]


async def run(*, num_users: int, num_head: int, shares: bool, threads: int | None) -> Run:
    """Every user's first turn, and the next one."""
    arch = architecture()
    most = num_head + 2 * (OWN + ANSWER)
    bytes_per_token = 2 * arch.num_layers * arch.num_kv_heads * arch.head_dim * (2 if has_gpu() else 4)
    room = (num_users + 2) * (most + 128) * bytes_per_token
    engine = open_engine(threads=threads, context_window=most + 128, kv_bytes=room)
    runner = engine._base.runner  # what is counted shows nowhere else
    assert isinstance(runner, NetworkRunner)
    counted = _count(runner)
    head = prompt_ids(arch, num_head)
    num_shareable = num_head if shares else 0
    firsts, nexts = list[float](), list[float]()
    await stream(engine, prompt_ids(arch, num_head, seed=9), max_tokens=2, salt="warm-up")
    del counted[:]
    began_at = time.perf_counter()
    for user in range(num_users):
        prompt = [*head, *prompt_ids(arch, OWN, seed=1 + user)]
        salt = f"user {user}"
        first = await stream(engine, prompt, max_tokens=ANSWER, salt=salt, num_shareable=num_shareable)
        prompt += [*first.token_ids, *prompt_ids(arch, OWN, seed=1000 + user)]
        following = await stream(engine, prompt, max_tokens=ANSWER, salt=salt, num_shareable=num_shareable)
        assert first.num_cached == 0, "what others left is not told"
        firsts.append(first.ttft_s)
        nexts.append(following.ttft_s)
    seconds = time.perf_counter() - began_at
    await engine.close()
    return Run(num_tokens=sum(counted), seconds=seconds, firsts_s=firsts[1:], nexts_s=nexts[1:])


def _count(runner: NetworkRunner) -> list[int]:
    """The tokens of every pass that reads prompts, as they come."""
    counted, plain = list[int](), runner.run

    def counting(pieces: Sequence[SequencePiece]) -> list[Tensor]:
        counted.append(sum(len(piece.token_ids) for piece in pieces))
        return plain(pieces)

    counting_runner: Any = runner
    counting_runner.run = counting
    return counted


async def run_adapters(*, num_users: int, num_rounds: int, threads: int | None) -> dict[str, float]:
    """Tokens a second of all users together: on the base, on one adapter, on an adapter each."""
    engine = open_engine(threads=threads, max_active=num_users, max_adapters=num_users)
    labels = [f"v{1 + user}" for user in range(num_users)]
    with tempfile.TemporaryDirectory() as directory:
        for number, label in enumerate(labels):
            folder = Path(directory) / label
            adapter = AdapterWeights.random(
                architecture(),
                rank=RANK,
                alpha=2.0 * RANK,
                seed=number,
                b_std=0.001,
                device=torch.device("cpu"),
                dtype=torch.float32,
            )
            adapter.save(folder)
            weights = WeightsRef.of_folder(folder, folder_sha256(folder))
            await engine.publish(Publication(version=label, weights=weights, live=False))
    rounds: list[tuple[float, float, float]] = []
    for turn in range(num_rounds + 1):
        alone = await _written_per_s(engine, [BASE_VERSION] * num_users, turn)
        one = await _written_per_s(engine, [labels[0]] * num_users, turn)
        mixed = await _written_per_s(engine, labels, turn)
        rounds.append((alone, one, mixed))
    await engine.close()
    measured = rounds[1:]  # the first one warms up
    return {
        "one_adapter_tok_s": median(one for _, one, _ in measured),
        "mixed_adapters_tok_s": median(mixed for *_, mixed in measured),
        "mixed_adapters_32": median(mixed / one for _, one, mixed in measured),
        "no_adapter_tok_s": median(alone for alone, *_ in measured),
    }


async def _written_per_s(engine: EmbeddedEngine, labels: Sequence[str], seed: int) -> float:
    """From the first moment at which all write."""
    size = WRITTEN_ON_GPU if has_gpu() else WRITTEN
    prompts = [prompt_ids(architecture(), OWN, seed=100 * seed + user) for user in range(len(labels))]
    answers = await asyncio.gather(
        *(
            stream(engine, prompt, max_tokens=size + 1, version=label, salt=f"user {user}")
            for user, (prompt, label) in enumerate(zip(prompts, labels, strict=True))
        )
    )
    all_write = max(answer.arrivals[0] for answer in answers)
    late = [at for answer in answers for at in answer.arrivals if at > all_write]
    return len(late) / (max(late) - all_write)


def arguments() -> argparse.Namespace:
    made = parser("Measure what it costs that users share neither cache nor adapter.")
    made.add_argument("--part", choices=("heads", "adapters"), default=None, help="one of both; both if not given")
    made.add_argument("--users", type=int, default=None, help="how many users; 32, and 8 with --quick")
    made.add_argument("--head", type=int, default=None, help="tokens of the head; 11000 on a GPU, scaled down on a CPU")
    made.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU where there is one"
    )
    chosen = made.parse_args()
    if chosen.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before the first look at one
    if chosen.device == "cuda" and not has_gpu():
        made.error("--device cuda: there is no GPU here")
    scale = 1 if has_gpu() else 32 if chosen.quick else 16
    chosen.users = chosen.users or (8 if chosen.quick else USERS)
    chosen.head = chosen.head or HEAD // scale
    if chosen.users < 2 or chosen.head < 64:
        made.error("--users must be at least 2 and --head at least 64")
    return chosen


def measure_heads(chosen: argparse.Namespace) -> dict[str, float]:
    """All users one after the other, apart and with shared heads."""
    if chosen.head < HEAD:
        print(f"a head of {chosen.head:,} tokens stands for one of {HEAD:,}")

    def measured(*, shares: bool) -> Run:
        return asyncio.run(run(num_users=chosen.users, num_head=chosen.head, shares=shares, threads=chosen.threads))

    apart, shared = measured(shares=False), measured(shares=True)
    return {
        "head_tokens": chosen.head,
        "tokens_apart": apart.num_tokens,
        "tokens_shared": shared.num_tokens,
        "tokens_apart_over_shared": apart.num_tokens / shared.num_tokens,
        "seconds_apart": apart.seconds,
        "seconds_shared": shared.seconds,
        "seconds_apart_over_shared": apart.seconds / shared.seconds,
        "ttft_first_apart_s": median(apart.firsts_s),
        "ttft_first_shared_s": median(shared.firsts_s),
        "ttft_next_apart_s": median(apart.nexts_s),
        "ttft_next_shared_s": median(shared.nexts_s),
    }


def main() -> int:
    chosen, began_at = arguments(), time.monotonic()
    found: dict[str, float] = {"users": chosen.users}
    if chosen.part != "adapters":
        found |= measure_heads(chosen)
    if chosen.part != "heads":
        rounds = 2 if chosen.quick else 5
        found |= asyncio.run(run_adapters(num_users=chosen.users, num_rounds=rounds, threads=chosen.threads))
    found["seconds"] = time.monotonic() - began_at
    show(FIGURES, found, as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
