"""What judging costs: the default judge on one core, and what people notice of a judge that takes 5 s for each vote.

    python benchmarks/judge.py [--quick] [--json] [--dir DIRECTORY]

Prints a table; with `--json` also one object of all figures as the last line. Three systems are measured in turns, the
other two frozen meanwhile: one that serves without learning, one with the default judge, and one with an endpoint that
is as slow as that. Conversations go on, so every request brings evidence on the turn before it. `noise_ms` is how far
the windows of the first system lie apart: what a judge adds is to be less. Ends with status 1 if a request failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks import prompts
from benchmarks.judge_server import JudgeServer
from benchmarks.load import Answer, Connection, LoadError, connect, open_loop, percentile
from benchmarks.prompts import KIB, Chat
from benchmarks.system import Cpu, System, require_disk
from openclaw_rl.config import load_config
from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.evidence import build_evidence
from openclaw_rl.judge.registry import make_judges
from openclaw_rl.types import Completion, Message, NextState, Sampling, Turn, VersionSpan

VOTE_S = 5.0
PER_S = 50.0
NUM_CONNECTIONS = 16

FIGURES = {
    "rules_turns_per_s": ("rules: verdicts in a second of one core", ">= 2000"),
    "rules_with_evidence_per_s": ("  with the evidence put together from the recorded turn first", ""),
    "p50_without_ms": ("chat without learning: p50 to the last byte, ms", ""),
    "p99_without_ms": ("  p99, median of the windows, ms", ""),
    "cpu_ms_without": ("  CPU of the gateway per request, ms", ""),
    "noise_ms": ("  p99 of the worst window less that of the best: the run's own noise, ms", ""),
    "p50_rules_ms": ("chat with the default judge: p50, ms", ""),
    "p99_rules_ms": ("  p99, median of the windows, ms", ""),
    "cpu_ms_rules": ("  CPU of the gateway per request, judging and crediting included, ms", ""),
    "p50_with_ms": ("chat with a judge that takes 5 s per vote: p50, ms", ""),
    "p99_with_ms": ("  p99, median of the windows, ms", "difference < noise_ms"),
    "cpu_ms_with": ("  CPU of the gateway per request, ms", ""),
    "added_p99_ms": ("  difference to the p99 without learning, ms", "< noise_ms"),
    "judged_rules": ("turns judged meanwhile by the default judge", "> 0"),
    "votes_asked": ("votes that the slow judge was asked for", "> 0"),
    "load_average": ("load average of this machine before the run", ""),
    "seconds": ("length of the run, s", ""),
}
"""Every figure, what it is called in the table, and the bar it has to pass where there is one."""

REACTIONS = (
    "Thanks, that works!",
    "No, shorter please.",
    "That's wrong: the second argument must be the path, not the name. Fix it and don't touch the rest.",
    "And how do I run it under Windows?",
    "ok",
    "不对，请用中文回答。",
    "Can you explain the last step again? I asked for the reason, and you listed commands. Use one short paragraph.",
    "great, next: write the tests for it",
)


def _turn(index: int) -> tuple[Turn, NextState]:
    """A turn of a long conversation, and what the user said next."""
    messages = tuple(Message(role=("user", "assistant")[i % 2], content=prompts.prose(400)) for i in range(9))
    reply = Message(role="assistant", content=prompts.prose(600))
    turn = Turn(
        session="s",
        index=index,
        parent=None,
        kind="main",
        created_at=0.0,
        finished_at=0.0,
        dialect="chat",
        model="m",
        messages=(prompts.SYSTEM_PROMPT, *messages),
        tools=(),
        sampling=Sampling(max_tokens=64),
        prompt_ids=(1,),
        completion=Completion(
            token_ids=(1,), logprobs=(-0.1,), finish_reason="stop", version_spans=(VersionSpan("v0", 0, 1),)
        ),
        message=reply,
        request_digest="",
        chain="",
    )
    said = Message(role="user", content=REACTIONS[index % len(REACTIONS)])
    return turn, NextState(session="s", index=index, messages=(said,), arrived_at=0.0)


async def measure_rules(figures: dict[str, float], *, seconds: float) -> None:
    """Turns through evidence and verdict, one after the other, by the CPU time that they take."""
    judge = Composed(make_judges(load_config(env={}, overrides=["evaluation.judge=rules"]).config))
    cases = [_turn(index) for index in range(256)]
    num, reading_s, judging_s = 0, 0.0, 0.0
    while reading_s + judging_s < seconds:
        began = time.process_time()
        found = [build_evidence(*case, (), main_line=("user", "tool"), max_chars=8000) for case in cases]
        read = time.process_time()
        for evidence in found:
            assert evidence is not None
            await judge.judge(evidence)
        reading_s, judging_s = reading_s + read - began, judging_s + time.process_time() - read
        num += len(cases)
    figures["rules_turns_per_s"] = num / judging_s
    figures["rules_with_evidence_per_s"] = num / (reading_s + judging_s)


@dataclass(slots=True)
class Party:
    """One system with its connections, and the answers of each window."""

    system: System
    chat: Chat
    connections: list[Connection]
    before: Cpu
    windows: list[list[Answer]] = field(default_factory=list)

    async def talk(self, seconds: float) -> list[Answer]:
        """Conversations that go on; nobody else computes meanwhile."""
        self.system.thaw()
        try:
            return await open_loop(
                self.connections,
                lambda number: self.chat.next_turn(number, new=256, most=16 * KIB),
                per_s=PER_S,
                seconds=seconds,
            )
        finally:
            self.system.freeze()

    def ms(self, percent: float) -> list[float]:
        """A percentile of each window."""
        return [1000 * percentile((answer.seconds for answer in window), percent) for window in self.windows]


async def measure_chat(figures: dict[str, float], directory: Path, *, window_s: float, num_windows: int) -> None:
    """The same load on all three, in turns."""
    script = f"engine.scripted.replies={json.dumps(prompts.SCRIPT)}"
    judge = JudgeServer(delay_s=VOTE_S)
    async with judge.listening() as url:
        slow = ("evaluation.judge=endpoint", f"evaluation.judge_url={url}", "evaluation.judge_model=m")
        starts: dict[str, tuple[str, tuple[str, ...]]] = {
            "without": ("serve", ()),
            "rules": ("up", ()),
            "with": ("up", slow),
        }
        with ExitStack() as running:
            parties: dict[str, Party] = {}
            for name, (command, settings) in starts.items():
                system = await asyncio.to_thread(System, directory / name, script, *settings, command=command)
                running.enter_context(system)
                connections = await connect(system.address, NUM_CONNECTIONS)
                parties[name] = Party(system, Chat(system.key), connections, system.cpu())
                await parties[name].talk(window_s / 2)
                parties[name].before = system.cpu()
            for _ in range(num_windows):
                for party in parties.values():
                    party.windows.append(await party.talk(window_s))
            for name, party in parties.items():
                num_answers = sum(map(len, party.windows))
                figures[f"cpu_ms_{name}"] = 1000 * (party.system.cpu() - party.before).gateway / num_answers
            figures["judged_rules"] = parties["rules"].system.count("judgement")
    for name, party in parties.items():
        figures[f"p50_{name}_ms"] = median(party.ms(50))
        figures[f"p99_{name}_ms"] = median(party.ms(99))
    spread = parties["without"].ms(99)
    figures["noise_ms"] = max(spread) - min(spread)
    figures["added_p99_ms"] = figures["p99_with_ms"] - figures["p99_without_ms"]
    figures["votes_asked"] = judge.num_votes
    if not judge.num_votes or not figures["judged_rules"]:
        raise LoadError("nothing was judged, so nothing is known about what judging costs")


async def measure(directory: Path, *, quick: bool) -> dict[str, float]:
    began_at = time.monotonic()
    figures: dict[str, float] = {"load_average": os.getloadavg()[0]}
    await measure_rules(figures, seconds=1.0 if quick else 4.0)
    await measure_chat(figures, directory, window_s=3.0 if quick else 10.0, num_windows=4 if quick else 6)
    figures["seconds"] = time.monotonic() - began_at
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure judging, and what people notice of it.")
    parser.add_argument("--quick", action="store_true", help="one minute instead of four; rougher figures")
    parser.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the stores lie: a disk")
    arguments = parser.parse_args()
    try:
        require_disk(arguments.dir)
        with tempfile.TemporaryDirectory(prefix="bench-", dir=arguments.dir) as directory:
            figures = uvloop.run(measure(Path(directory), quick=arguments.quick))
    except LoadError as error:
        print(f"the benchmark failed: {error}", file=sys.stderr)
        return 1
    for name, (label, bar) in FIGURES.items():
        print(f"{name:26} {figures[name]:>10,.2f}  {label}{f'  ({bar})' if bar else ''}")
    if arguments.json:
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
