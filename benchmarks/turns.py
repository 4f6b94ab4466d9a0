"""Time to first token along a session of 20 turns: what prefix reuse saves, also across a publish.

    python benchmarks/turns.py [--json] [--quick]

A system prompt of 2,000 tokens, then turns of 40 new tokens and an answer of 24. The opponent is the same engine that
gets a prompt of the same length that nobody has seen, so that there is nothing to reuse.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.embedded import Stream, architecture, open_engine, parser, prompt_ids, show, stream
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.types import Publication, WeightsRef

SYSTEM, NEW, ANSWER = 2000, 40, 24

FIGURES = {
    "ttft_first_s": ("turn 1, which reads the system prompt, s", ""),
    "ttft_second_s": ("turn 2, s", ""),
    "ttft_last_s": ("turn 20 (median of the last three), s", ""),
    "ttft_last_over_second": ("  turn 20 over turn 2", "<= 1.5"),
    "ttft_without_reuse_s": ("turn 20 without reuse, s", ""),
    "speedup_vs_no_reuse": ("  how much quicker with reuse", ">= 5"),
    "ttft_after_publish_s": ("turn 21, the first after a publish, reuse(4), s", ""),
    "publish_over_last": ("  over turn 20", ""),
    "ttft_after_publish_exact_s": ("the same with kv_after_update: exact, s", ""),
    "cached_share_last": ("share of turn 20's prompt that was found", ""),
    "seconds": ("length of the run, s", ""),
}


async def session(
    *, num_turns: int, rule: str, threads: int | None, versions: Path
) -> tuple[list[Stream], Stream, Stream]:
    """A whole session; then its last turn without reuse, and one more turn after a publish."""
    engine = open_engine(kv_after_update=rule, threads=threads)
    arch = architecture()
    prompt, turns = prompt_ids(arch, SYSTEM), list[Stream]()
    for turn in range(num_turns):
        prompt += prompt_ids(arch, NEW, seed=1 + turn)
        turns.append(await stream(engine, prompt, max_tokens=ANSWER))
        prompt += turns[-1].token_ids
    without = await stream(engine, prompt_ids(arch, len(prompt) - ANSWER, seed=901), max_tokens=2)
    await engine.publish(_publication(versions))
    prompt += prompt_ids(arch, NEW, seed=900)
    after = await stream(engine, prompt, max_tokens=ANSWER)
    await engine.close()
    return turns, after, without


def _publication(folder: Path) -> Publication:
    if not folder.exists():
        arch = architecture()
        adapter = AdapterWeights.random(
            arch, rank=16, alpha=32.0, seed=1, b_std=0.001, device=torch.device("cpu"), dtype=torch.float32
        )
        adapter.save(folder)
    return Publication(version="v1", weights=WeightsRef.of_folder(folder, folder_sha256(folder)))


def main() -> int:
    arguments = parser("Measure the time to first token along a session.").parse_args()
    num_turns, began_at = 20, time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        adapter = Path(directory) / "v1"

        def run(rule: str) -> tuple[list[Stream], Stream, Stream]:
            return asyncio.run(session(num_turns=num_turns, rule=rule, threads=arguments.threads, versions=adapter))

        turns, after, without = run("reuse(4)")
        _, after_exact, _ = (turns, after, without) if arguments.quick else run("exact")
    last = median(turn.ttft_s for turn in turns[-3:])
    size = SYSTEM + num_turns * NEW + (num_turns - 1) * ANSWER
    found = {
        "ttft_first_s": turns[0].ttft_s,
        "ttft_second_s": turns[1].ttft_s,
        "ttft_last_s": last,
        "ttft_last_over_second": last / turns[1].ttft_s,
        "ttft_without_reuse_s": without.ttft_s,
        "speedup_vs_no_reuse": without.ttft_s / last,
        "ttft_after_publish_s": after.ttft_s,
        "publish_over_last": after.ttft_s / last,
        "cached_share_last": turns[-1].num_cached / size,
        "seconds": time.monotonic() - began_at,
    }
    if not arguments.quick:
        found["ttft_after_publish_exact_s"] = after_exact.ttft_s
    show(FIGURES, found, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
