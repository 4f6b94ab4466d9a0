"""Does it learn, how soon, and what does that cost: simulated people on the real system, and its opponents.

    python benchmarks/learning.py [--json] [--quick | --full | --tune | --wishes] [--arms NAMES] [--dir DIRECTORY]
                                   [section.key=value ...]

An arm is the whole system (`openclaw-rl up`, the embedded model, every version behind its gate) with some settings. In
each of its sessions a person with a hidden preference asks a question that nobody asked them before, reacts to at most
three replies, and comes back when what was said is learned. All people of an arm talk side by side, each a user with a
line of their own. Who had three good first replies in a row is stable and leaves; the session in which that began
counts. Who never was counts as the cap, marked ">".

    default      the product, at the learning rate and batch size that the grid below found best for it: its own
    reference    the published recipe, at those that the same grid found best for it
    published    the published recipe with the values that it was published with
    grpo, opd    the product with one half of its objective
    memory       no training: the preferences that the judge found, in the system prompt
    none         no training, nothing remembered

A partial batch is taken at the end of a session (`training.max_wait_s` is not waited for): the person comes back later.
The reference has no such clock and takes whole batches only, as it was published.

Preference, topic and length are those of answers to 12 held-out questions, asked through the gateway and not learned
from, with the same seeds each time; capability is the share of items that come out right (evaluation/capability.py).

`--wishes` asks how far each of five wishes is learned in 16 lessons: *base* is the untouched model, *ceiling* the same
with the wish behind the question, *learned* what answers in the end; `ceiling_share` is the mean of (learned - base) /
(ceiling - base) over the users whose ceiling lies at least 0.15 above the base.

Without flags: default and reference, three seeds. `--full`: all arms, three users, five seeds. What is finished stands
in DIR/learning.jsonl, and a second start with the same --dir goes on there. `--tune` measures the grid, on other people
and other seeds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.learning_arms import ARMS, GRID, GRID_BATCHES, GRID_RATES, LABELS, TUNE_CAP, TUNE_PEOPLE, TUNED, trained
from benchmarks.learning_plots import plot
from benchmarks.learning_results import (
    IN_A_ROW,
    Cell,
    RecordFile,
    Summary,
    ceiling_share,
    figures,
    grid_text,
    reach_table,
    reaches,
    sessions_ratio,
    summarise,
    table,
    winners,
)
from benchmarks.learning_run import Plan, run_arm, say
from benchmarks.load import LoadError
from openclaw_rl.errors import OpenClawError
from openclaw_rl.evaluation.capability import load_items

LIGHT_GATE = (
    "release.capability_items=0",
    "release.replay_turns=3",
    "release.answer_tokens=32",
    "release.max_length=1.7",  # answers that are cut so soon say less of a length
)
"""What the gate is spared without `--full`, so that three people in two arms fit into 40 minutes on two cores.
Capability items are asked at the end either way, of the base model and of the last version."""

PROBE_EVERY, NUM_ITEMS = 10, 400
"""Without `--full`, for the same reason."""

WISHES, NUM_LESSONS, NUM_HELD_OUT_WISHES = ("brief", "friendly", "steps", "lists", "examples"), 16, 24
"""Users of `--wishes`, corrections that each gives, and questions that each is measured with."""

SESSION_S, STEP_S, GATE_S, LIGHT_GATE_S, ANSWER_S, ITEM_S, START_S = 4.0, 3.0, 65.0, 10.0, 0.8, 0.07, 15.0
"""For the estimate, on two cores: seconds of a person's session, of each sample of a step, of the gate and of a light
one, of a held-out answer, of a capability item, of a start."""
SAMPLES_A_SESSION = 3.0


async def run_arms(names: Sequence[str], plan: Plan, file: RecordFile, directory: Path) -> dict[str, Summary]:
    """The people of one simulated user at a time: what is finished of an arm is kept when the rest is interrupted."""
    found: dict[str, Summary] = {}
    for name in names:
        records = [one for part in plan.by_user() for one in await run_arm(ARMS[name], part, file, directory)]
        found[name] = summarise(name, records)
    return found


async def tune(file: RecordFile, directory: Path, settings: Sequence[str]) -> list[Cell]:
    """The same grid for both presets, on people that nothing else is measured with, behind a light gate."""
    plan = Plan(people=TUNE_PEOPLE, cap=TUNE_CAP, num_held_out=0, settings=(*LIGHT_GATE, *settings))
    cells: list[Cell] = []
    for preset in TUNED:
        for rate in GRID_RATES:
            for batch_size in GRID_BATCHES:
                name = f"{preset}, lr {rate:g}, batch {batch_size}"
                records = await run_arm(trained(name, name, preset, rate, batch_size), plan, file, directory)
                cells.append(Cell.of(preset, rate, batch_size, records))
                say(grid_text(cells[-1:]))
    return cells


def plan_of(arguments: argparse.Namespace) -> tuple[tuple[str, ...], Plan]:
    """Which arms, and how much of each."""
    arms: tuple[str, ...] = ("default", "reference")
    users: tuple[str, ...] = ("brief",)
    num_seeds, cap = 3, 16
    if arguments.full:
        arms, users, num_seeds, cap = tuple(ARMS), ("brief", "friendly", "steps"), 5, 24
    if arguments.wishes:
        arms, users, cap = ("default", "reference", "memory"), WISHES, NUM_LESSONS
    if arguments.quick:
        num_seeds, cap = 1, 4
    users = tuple(arguments.users.split(",")) if arguments.users else users
    num_seeds, cap = arguments.seeds or num_seeds, arguments.cap or cap
    arms = tuple(arguments.arms.split(",")) if arguments.arms else arms
    if unknown := [name for name in arms if name not in ARMS]:
        raise LoadError(f"there is no arm {', '.join(unknown)}; arms are {', '.join(ARMS)}")
    people = tuple((user, seed) for user in users for seed in range(1, num_seeds + 1))
    num_lessons = NUM_LESSONS if arguments.wishes else None
    plan = Plan(people=people, cap=cap, num_lessons=num_lessons, settings=tuple(arguments.settings))
    if arguments.wishes:
        plan = replace(plan, probe_every=0, num_held_out=NUM_HELD_OUT_WISHES, num_items=NUM_ITEMS)
    if not arguments.full:
        settings = (*LIGHT_GATE, *plan.settings)
        plan = replace(plan, settings=settings, num_items=NUM_ITEMS)
        plan = plan if arguments.wishes else replace(plan, probe_every=PROBE_EVERY)
    return arms, replace(plan, num_held_out=4, num_items=64) if arguments.quick else plan


def estimate_s(arms: Sequence[str], plan: Plan) -> float:
    """The longest that it can take on two cores: nobody becomes stable, and answers stay as long as they were."""
    total, gate_s = 0.0, LIGHT_GATE_S if set(LIGHT_GATE) <= set(plan.settings) else GATE_S
    exam_s = ITEM_S * (plan.num_items or len(load_items()))
    for name in arms:
        arm = ARMS[name]
        num_steps = 1.0 if arm.at_once else SAMPLES_A_SESSION / arm.batch_size if arm.learns else 0.0
        session_s = SESSION_S + num_steps * (arm.batch_size * STEP_S + gate_s)
        num_probes = 2 + (plan.cap // plan.probe_every if plan.probe_every else 0)
        each = plan.cap * session_s + num_probes * plan.num_held_out * ANSWER_S + exam_s
        total += START_S + len(plan.people) * each
    return total


def report(summaries: Mapping[str, Summary], plan: Plan, spent_s: float) -> str:
    """What a person reads."""
    lines = [table(summaries, LABELS), ""]
    found = {name: reaches(summary.records) for name, summary in summaries.items()}
    if any(found.values()):
        lines += [reach_table(found, LABELS), ""]
        for name, users in found.items():
            if (share := ceiling_share(users)) is not None:
                lines.append(f"ceiling_share {share:.2f}  {LABELS.get(name, name)}  (must of the default ≥ 0.7)")
        lines.append("")
    for title, other, bar in (
        ("sessions_vs_reference", "reference", "≤ 0.8, aim ≤ 0.5"),
        ("sessions_vs_memory", "memory", ""),
    ):
        ratio = sessions_ratio(summaries.get("default"), summaries.get(other))
        if ratio is not None:
            lines.append(
                f"{title:24} {ratio!s:>10}  mean sessions of default over those of {other}{f'  ({bar})' if bar else ''}"
            )
    lines += [
        "",
        f"At most {plan.cap} sessions; in brackets 95 % intervals over {len(plan.people)} people, or capability items.",
        "The reference is our re-implementation of the published recipe. Learning rate and batch of both come from",
        "the same grid, measured on other people and seeds:",
        grid_text(GRID),
        f"{spent_s / 60:.1f} minutes",
    ]
    return "\n".join(lines)


async def whole(arguments: argparse.Namespace, directory: Path) -> None:
    began_at, file = time.monotonic(), RecordFile(directory / "learning.jsonl")
    if arguments.tune:
        cells = await tune(file, directory, arguments.settings)
        print(grid_text(cells))
        print("for the script:")
        for cell in cells:
            print(f"    {cell!r},")
        print(f"TUNED = { ({name: (cell.learning_rate, cell.batch_size) for name, cell in winners(cells).items()}) }")
        return
    arms, plan = plan_of(arguments)
    say(f"at most {estimate_s(arms, plan) / 60:.0f} minutes on two cores that have nothing else to do")
    summaries = await run_arms(arms, plan, file, directory)
    spent_s = time.monotonic() - began_at
    print(report(summaries, plan, spent_s))
    if arguments.plot is not None:
        plot(summaries, LABELS, arguments.plot)
        print(f"plot: {arguments.plot}")
    if arguments.json:
        extra = {"cap": plan.cap, "people": len(plan.people), "grid": [asdict(cell) for cell in GRID]}
        print(json.dumps({**figures(summaries), **extra, "seconds": round(spent_s, 1)}))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how soon simulated people are content, and what it costs.")
    parser.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_true", help="one seed, few sessions: only to see that it runs")
    how_much.add_argument(
        "--full", action="store_true", help="all arms, three users, five seeds: most of a day on two cores"
    )
    how_much.add_argument("--wishes", action="store_true", help="how far five wishes are learned in 16 lessons")
    how_much.add_argument("--tune", action="store_true", help="the grid of learning rate and batch size, both presets")
    parser.add_argument("--arms", help=f"some of {','.join(ARMS)}, separated by commas")
    parser.add_argument("--users", help="simulated users, separated by commas")
    parser.add_argument("--seeds", type=int, help="people of each simulated user")
    parser.add_argument("--cap", type=int, help="most sessions of a person")
    parser.add_argument("--dir", type=Path, help="where stores and finished records lie; a second start goes on there")
    parser.add_argument("settings", nargs="*", help="section.key=value, for the system of every arm")
    parser.add_argument("--plot", type=Path, help="write a PNG of both curves")
    arguments = parser.parse_args()
    if arguments.plot is not None and find_spec("matplotlib") is None:
        parser.error("--plot needs the package matplotlib: pip install openclaw-rl[evaluation]")
    if arguments.cap is not None and arguments.cap < IN_A_ROW:
        parser.error(f"--cap must be at least {IN_A_ROW}: so many good first replies in a row are stable")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the server goes with us
    try:
        if arguments.dir is not None:
            arguments.dir.mkdir(parents=True, exist_ok=True)
            asyncio.run(whole(arguments, arguments.dir))
        else:
            with tempfile.TemporaryDirectory(prefix="bench-learning-") as directory:
                asyncio.run(whole(arguments, Path(directory)))
    except (LoadError, OpenClawError) as error:
        print(f"the benchmark failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
