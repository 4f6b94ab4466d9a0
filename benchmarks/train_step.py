"""What a training step on a whole session costs, against the public recipe on the same network, kernels and threads.

    python benchmarks/train_step.py [--json] [--quick] [--threads N] [--plot turns.png]       on a CPU, about 2 minutes
    python benchmarks/train_step.py --device cuda [--part chain]...                           on a GPU, below 8 minutes

On a GPU a model of the shape of Qwen3-4B in bfloat16, with random weights and a LoRA of rank 32 on all linear layers;
on a CPU a small one in float32, and every length of a session a tenth. Ours is the product's `StepTaker`, called as the
trainer calls it; `reference_step.py` is the opponent. Sessions are those of `sessions.py`, FLOPs those of
`step_arithmetic.py`. Parts, all of them unless some are named (`trl` only where it is named):

    chain      a session of 16 turns: both sides run all of it
    thinking   the same with thinking that is stripped from the history
    full       the chain with all weights learning
    turns      4 to 64 turns: ours is run, the reference measured at five lengths and summed by a quadratic fit
    online     one new turn: three hints scored behind the whole session, and a step on a session of one turn
    trl        the same tokens through TRL's nearest trainer (`trl_step.py`), where it is installed

Both sides are warm when they are measured: ours by a whole step, the reference on a GPU by the first layer of the same
network over the same lengths, and so is ours in `turns`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

os.environ.setdefault("GOMP_SPINCOUNT", "0")  # as the trainer's worker sets it; before torch is loaded

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.engines import QWEN3_4B, parser, random_network
from benchmarks.memory import PeakMemory
from benchmarks.our_step import BEGAN_AT, RANK, Bench, Ours, free, learner, say
from benchmarks.reference_step import ReferenceOutcome, ReferenceStep, now
from benchmarks.sessions import Lengths
from benchmarks.step_arithmetic import Bill, Keep, bill, quadratic
from benchmarks.trainer import SETTINGS
from openclaw_rl.model.network import Network
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.settings import LossSettings
from openclaw_rl.train.passes.reader import NetworkReader, Reader, RecallingReader
from openclaw_rl.train.passes.sequences import Sequenced
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.teacher import HintedQuestion, Teacher, ask
from openclaw_rl.types import Sample

PARTS = ("chain", "thinking", "full", "turns", "online")
SMALL = replace(
    QWEN3_4B, num_layers=2, hidden_size=256, mlp_size=768, num_heads=4, num_kv_heads=2, head_dim=64, vocab_size=8192
)
NUM_TURNS, THINKING = 16, 1500
SESSIONS = (4, 8, 16, 32, 64)
MEASURED = (0, 7, 15, 31, 63)
"""Turns, counted from 0, at which the reference is measured for its fit."""
NUM_RUNS = 3
"""Of our step on a CPU, whose times wander; on a GPU warm runs agree within 1 %."""
HEAD_IS_RECOMPUTED = True
"""Our head keeps no logits."""


def reference_step(bench: Bench, *, use_lora: bool = True) -> ReferenceStep:
    values = bench.settings(use_lora=use_lora)
    settings = TrainSettings.from_training(values)
    student, optimiser = learner(bench, settings)
    loss = HybridLoss(LossSettings.from_training(values))
    return ReferenceStep(student, NetworkReader(bench.network), optimiser, loss, settings)


@dataclass(frozen=True, slots=True)
class Timed:
    """Our side of a session: the median of warm steps, their peak of memory, and what the first one came to."""

    seconds: float
    cpu_s: float
    """Of all threads together."""
    peak_gib: float
    keep: Keep
    loss: float
    gradient_norm: float


def time_ours(ours: Ours, samples: Sequence[Sample]) -> Timed:
    """Once to warm up, with the memory that it needs; then measured."""
    device = ours.device
    first = ours.take(samples).metrics
    peak = PeakMemory(device)
    num = 1 if device.type == "cuda" else NUM_RUNS
    began_at = time.process_time()
    took = [_seconds(device, lambda: ours.take(samples)) for _ in range(num)]
    cpu_s = (time.process_time() - began_at) / num
    return Timed(median(took), cpu_s, peak.gib, ours.room.kept.keep, first["loss/total"], first["gradient/norm"])


def without_hints(samples: Sequence[Sample]) -> list[Sample]:
    return [replace(sample, candidates=(), w_opd=0.0) for sample in samples]


def time_both_ways(bench: Bench, samples: Sequence[Sample], *, use_lora: bool) -> tuple[Timed, float]:
    """Our step, and its seconds without hints: forward and backward pass of the student alone."""
    ours = Ours(bench, use_lora=use_lora)
    return time_ours(ours, samples), _seconds(bench.device, lambda: ours.take(without_hints(samples)))


@dataclass(frozen=True, slots=True)
class TimedReference:
    """The reference's side of a session."""

    outcome: ReferenceOutcome
    cpu_s: float
    peak_gib: float


def time_reference(bench: Bench, samples: Sequence[Sample], *, use_lora: bool, is_warm: bool) -> TimedReference:
    """A whole step, warm: `is_warm` if sequences of these lengths were read before."""
    if bench.device.type == "cuda" and not is_warm:
        reference_step(bench.shallow(), use_lora=use_lora).take(samples)
    step = reference_step(bench, use_lora=use_lora)
    step.turn(samples[0])
    peak = PeakMemory(bench.device)
    began_at = time.process_time()
    outcome = step.take(samples)
    return TimedReference(outcome, time.process_time() - began_at, peak.gib)


@dataclass(frozen=True, slots=True)
class Chain:
    """The plain session, both sides really run."""

    ours_s: float
    reference: ReferenceOutcome


class Benchmark:
    """Measures part by part; `found` is what is known so far."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._chain: Chain | None = None
        self.found: dict[str, float] = {"gemm_tflop_s": bench.gemm_tflop_s, "load_average": os.getloadavg()[0]}

    def measure(self, part: str) -> None:
        match part:
            case "chain":
                self._session("chain")
            case "thinking":
                self._session("thinking", thinking=True)
            case "full":
                self._session("full", use_lora=False)
            case "turns":
                self._turns()
            case "online":
                self.found |= measure_online(self._bench)
            case "trl":
                self.found |= measure_trl(self._bench)
        free()

    def _session(self, name: str, *, thinking: bool = False, use_lora: bool = True) -> None:
        """One session on both sides."""
        bench = self._bench
        samples = bench.samples(bench.num_turns, thinking=thinking)
        say(f"{name}: the reference, {len(samples)} turns")
        is_warm = name == "full" and self._chain is not None
        timed = time_reference(bench, samples, use_lora=use_lora, is_warm=is_warm)
        reference = timed.outcome
        free()
        say(f"{name}: the reference took {reference.passes.total:.2f} s; ours")
        ours, learn_s = time_both_ways(bench, samples, use_lora=use_lora)
        free()
        rank = RANK if use_lora else 0
        due = bill(bench.arch, samples, rank=rank, keep=ours.keep, head_again=HEAD_IS_RECOMPUTED)
        found = compare(bench, due, ours, timed) | {
            "learn_s": learn_s,
            "speedup_learn": reference.passes.learn / learn_s,
            "loss_gap": abs(ours.loss - reference.loss),
            "gradient_gap": abs(ours.gradient_norm / reference.gradient_norm - 1),
        }
        say(f"{name}: {found['speedup']:.2f} times, by arithmetic {due.bound:.2f}; ours took {ours.seconds:.3f} s")
        say(f"{name}: ours kept {ours.keep}")
        if found["speedup"] > due.bound:
            rates = f"{found['tflop_s']:.3g} against {found['reference_tflop_s']:.3g} TFLOP/s"
            say(f"{name}: above the arithmetic bound, as ours runs at a higher rate: {rates}")
        self.found |= {f"{name}_{key}": value for key, value in found.items()}
        if name == "chain":
            self._chain = Chain(ours.seconds, reference)

    def _turns(self) -> None:
        """Ours at every length of a session; the reference by its fit."""
        bench, sessions = self._bench, [num for num in SESSIONS if num <= 4 * self._bench.num_turns]
        samples, lengths = bench.samples(max(sessions)), replace(bench.lengths, thinking=0)
        took = self._reference_turns(samples)
        fitted = quadratic([lengths.read(turn) for turn in took], list(took.values()))
        seconds, theirs = dict[int, float](), dict[int, float]()
        for num in sessions:
            theirs[num] = sum(fitted(lengths.read(turn)) for turn in range(num))
            if self._chain is not None and num == bench.num_turns:
                seconds[num] = self._chain.ours_s
                self.found["turns_fit_error"] = theirs[num] / self._chain.reference.passes.total - 1
            else:
                seconds[num] = self._our_first_step(samples[:num])
                free()
            self.found[f"turns_{num}_s"] = seconds[num]
            self.found[f"turns_{num}_reference_fitted_s"] = theirs[num]
            self.found[f"turns_{num}_speedup"] = theirs[num] / seconds[num]
            say(f"turns: {num} take {seconds[num]:.2f} s, {theirs[num] / seconds[num]:.1f} times less")
        half, whole = sessions[-2:]
        self.found["turns_growth_ours"] = math.log(seconds[whole] / seconds[half], whole / half)
        self.found["turns_growth_reference"] = math.log(theirs[whole] / theirs[half], whole / half)

    def _our_first_step(self, samples: Sequence[Sample]) -> float:
        """With plans for its lengths; memory is taken within it. A second one would take half a minute at 64 turns."""
        if self._bench.device.type == "cuda":
            Ours(self._bench.shallow()).take(samples)
        ours = Ours(self._bench)
        return _seconds(self._bench.device, lambda: ours.take(samples))

    def _reference_turns(self, samples: Sequence[Sample]) -> dict[int, float]:
        """Seconds of some of the reference's turns, those of the chain among them where it was run."""
        took = {} if self._chain is None else {at: one.total for at, one in enumerate(self._chain.reference.turns)}
        missing = [turn for turn in MEASURED if turn < len(samples) and turn not in took]
        if self._bench.device.type == "cuda":
            shallow = reference_step(self._bench.shallow())
            for turn in missing:
                shallow.turn(samples[turn])
        step = reference_step(self._bench)
        step.turn(samples[0])
        for turn in missing:
            took[turn] = step.turn(samples[turn]).total
            say(f"turns: the reference's turn {turn + 1} took {took[turn]:.2f} s")
        return took


def compare(bench: Bench, due: Bill, ours: Timed, reference: TimedReference) -> dict[str, float]:
    """The figures of one session."""
    passes = reference.outcome.passes
    rate, model_rate = due.ours.executed / 1e12 / ours.seconds, due.ours.model / 1e12 / ours.seconds
    return {
        "s": ours.seconds,
        "reference_s": passes.total,
        "speedup": passes.total / ours.seconds,
        "speedup_cpu_time": reference.cpu_s / ours.cpu_s,
        "bound": due.bound,
        "reference_needed_s": passes.needed,
        "speedup_needed": passes.needed / ours.seconds,
        "reference_old_s": passes.old,
        "reference_reference_s": passes.reference,
        "reference_teachers_s": passes.teachers,
        "reference_learn_s": passes.learn,
        "bound_learn": due.bound_learn,
        "peak_gib": ours.peak_gib,
        "reference_peak_gib": reference.peak_gib,
        "memory_ratio": reference.peak_gib / ours.peak_gib,
        "tokens": due.our_tokens,
        "reference_tokens": due.reference_tokens,
        "tflop": due.ours.executed / 1e12,
        "tflop_forward": due.ours.forward / 1e12,
        "tflop_recompute": due.ours.recompute / 1e12,
        "tflop_backward": due.ours.backward / 1e12,
        "reference_tflop": due.reference.executed / 1e12,
        "reference_tflop_forward": due.reference.forward / 1e12,
        "reference_tflop_recompute": due.reference.recompute / 1e12,
        "reference_tflop_backward": due.reference.backward / 1e12,
        "tflop_s": rate,
        "reference_tflop_s": due.reference.executed / 1e12 / passes.total,
        "rate_of_gemm": rate / bench.gemm_tflop_s,
        "hfu": rate / bench.peak_tflop_s,
        "mfu": model_rate / bench.peak_tflop_s,
        "mfu_of_gemm": model_rate / bench.gemm_tflop_s,
    }


def measure_online(bench: Bench) -> dict[str, float]:
    """What one new turn costs: its hints scored, and a step on it alone."""
    before, newest = (hinted(sample) for sample in bench.samples(bench.num_turns)[-2:])

    def score(reader: Reader, sequences: Sequence[Sequenced]) -> None:
        questions = [HintedQuestion(Teacher(reader), one, 1.0) for one in sequences]
        for one, rows in zip(sequences, ask(questions, [reader], max_tokens=1 << 62), strict=True):
            rows.top_k(SETTINGS["top_k"])
            rows.logprob(torch.tensor(one.response_ids, device=bench.device).unsqueeze(-1))

    def recalled() -> tuple[float, float]:
        """By a teacher that has read the turn before: with the new turn's context, and once more without."""
        reader = RecallingReader(bench.network)
        score(reader, before)
        first, second = (_seconds(bench.device, lambda: score(reader, newest)) for _ in range(2))
        return first, second

    def warm_median(work: Callable[[], object]) -> float:
        work()
        return median(_seconds(bench.device, work) for _ in range(NUM_RUNS))

    recalled()
    turn_s, ours_s = (median(times) for times in zip(*(recalled() for _ in range(NUM_RUNS)), strict=True))
    afresh_s = warm_median(lambda: score(NetworkReader(bench.network), newest))

    def one_by_one() -> None:
        for one in newest:
            score(NetworkReader(bench.network).plain, [one])

    plain_s = warm_median(one_by_one)
    say(
        f"online: hints scored in {1000 * ours_s:.0f} ms, with the turn's context in {1000 * turn_s:.0f} ms, with "
        f"nothing remembered in {1000 * afresh_s:.0f} ms, one by one in {1000 * plain_s:.0f} ms"
    )
    free()
    first = bench.samples(1)
    ours, reference = Ours(bench), reference_step(bench)
    step_s = warm_median(lambda: ours.take(first))
    reference_s = warm_median(lambda: reference.take(first))
    say(f"online: a step on one turn took {step_s:.2f} s, the reference's {reference_s:.2f} s")
    return {
        "online_score_ms": 1000 * ours_s,
        "online_turn_ms": 1000 * turn_s,
        "online_score_afresh_ms": 1000 * afresh_s,
        "online_score_reference_ms": 1000 * plain_s,
        "online_score_speedup": plain_s / ours_s,
        "online_step_s": step_s,
        "online_step_reference_s": reference_s,
    }


def hinted(sample: Sample) -> list[Sequenced]:
    return [Sequenced(sample.teacher_prompt(one), sample.response_ids) for one in sample.candidates]


def measure_trl(bench: Bench) -> dict[str, float]:
    try:
        from benchmarks.trl_step import time_trl  # brings TRL, which is no dependency
    except ImportError as error:
        say(f"trl: left out ({error}). Install it where this runs: pip install trl")
        return {}
    samples = without_hints(bench.samples(bench.num_turns))
    say("trl: its step")
    theirs = time_trl(bench.network, samples, rank=RANK)
    ours = time_ours(Ours(bench), samples).seconds
    answered = sum(len(sample.response_ids) for sample in samples)
    return {
        "trl_s": theirs,
        "trl_ours_s": ours,
        "trl_us_per_answer_token": 1e6 * theirs / answered,
        "trl_ours_us_per_answer_token": 1e6 * ours / answered,
        "trl_speedup": theirs / ours,
    }


def gemm_tflop_s(device: torch.device) -> float:
    """What a product of two large square matrices reaches, the best of ten."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    left @ right
    return 2 * size**3 / 1e12 / min(_seconds(device, lambda: left @ right) for _ in range(10))


def _seconds(device: torch.device, work: Callable[[], object]) -> float:
    began_at = now(device)
    work()
    return now(device) - began_at


_SESSIONS = ("chain", "thinking", "full")
_LABELS = {
    "s": "our step, s",
    "reference_s": "the reference's step, s",
    "speedup": "  times ours",
    "speedup_cpu_time": "  in CPU time, which other work does not stretch",
    "bound": "  by arithmetic: its FLOPs over ours",
    "reference_needed_s": "  without its old-policy and reference passes, s",
    "speedup_needed": "  times ours",
    "learn_s": "our step without hints, s",
    "reference_old_s": "the reference: old policy, s",
    "reference_reference_s": "  reference policy, s",
    "reference_teachers_s": "  teachers, s",
    "reference_learn_s": "  forward and backward, s",
    "speedup_learn": "  times our step without hints",
    "bound_learn": "  by arithmetic",
    "peak_gib": "our peak memory, weights included, GiB",
    "reference_peak_gib": "the reference's, GiB",
    "memory_ratio": "  times ours",
    "tokens": "tokens through the model, ours",
    "reference_tokens": "  the reference",
    "tflop": "TFLOP of our step",
    "tflop_forward": "  forward",
    "tflop_recompute": "  computed again",
    "tflop_backward": "  backward",
    "reference_tflop": "TFLOP of the reference's step",
    "reference_tflop_forward": "  forward",
    "reference_tflop_recompute": "  computed again",
    "reference_tflop_backward": "  backward",
    "tflop_s": "our TFLOP/s",
    "reference_tflop_s": "the reference's TFLOP/s",
    "rate_of_gemm": "our rate over a large product's",
    "hfu": "our rate over the peak",
    "mfu": "  without what is computed again",
    "mfu_of_gemm": "  that over a large product's rate",
    "loss_gap": "first step's loss, difference of the two",
    "gradient_gap": "first step's gradient norm, relative difference",
}
_OTHERS = {
    "gemm_tflop_s": "a large square product, TFLOP/s",
    "turns_growth_ours": "twice the turns take ours 2 to the power of this",
    "turns_growth_reference": "  the reference, fitted",
    "turns_fit_error": "the fit over the session that was run, minus 1",
    "online_score_ms": "three hints of one new turn scored behind the session, ms",
    "online_turn_ms": "  with the turn's context, which is new, ms",
    "online_score_afresh_ms": "  with nothing remembered, ms",
    "online_score_reference_ms": "  one by one, ms",
    "online_score_speedup": "  times ours",
    "online_step_s": "a step on a session of one turn, s",
    "online_step_reference_s": "  the reference, s",
    "trl_s": "TRL's GRPO step on the chain, s",
    "trl_ours_s": "  ours, without hints as TRL, s",
    "trl_us_per_answer_token": "  TRL, µs for each answer token",
    "trl_ours_us_per_answer_token": "  ours",
    "trl_speedup": "  times ours",
    "load_average": "load average of this machine before the run",
    "seconds": "length of the run, s",
}
_SHORT = {
    "speedup_chain": "chain_speedup",
    "speedup_thinking": "thinking_speedup",
    "memory_ratio": "chain_memory_ratio",
    "mfu": "chain_mfu",
}


def show(found: Mapping[str, float], device: torch.device) -> None:
    """Sessions beside each other, then lengths, then the rest."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"on {name}, torch {torch.__version__}")
    measured = [part for part in _SESSIONS if f"{part}_s" in found]
    if measured:
        print(f"\n{'':50}" + "".join(f"{part:>14}" for part in measured))
        for key, label in _LABELS.items():
            print(f"{label:50}" + "".join(f"{_number(found[f'{part}_{key}']):>14}" for part in measured))
    lengths = [num for num in SESSIONS if f"turns_{num}_s" in found]
    if lengths:
        print(f"\n{'turns':>5} {'ours, s':>12} {'reference, fitted, s':>22} {'times':>8}")
    for num in lengths:
        ours, theirs, times = (found[f"turns_{num}_{key}"] for key in ("s", "reference_fitted_s", "speedup"))
        print(f"{num:5} {_number(ours):>12} {_number(theirs):>22} {times:8.1f}")
    print()
    for key, label in _OTHERS.items():
        if key in found:
            print(f"{label:60} {_number(found[key]):>14}")
    sys.stdout.flush()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def main() -> None:
    arguments = _arguments()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    is_large = device.type == "cuda" and not arguments.quick
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    lengths = Lengths(thinking=THINKING)
    random = random_network(QWEN3_4B if is_large else SMALL, device=device, dtype=dtype)
    bench = Bench(
        network=Network(random.arch, random.weights, is_fused=True),
        lengths=lengths if is_large else lengths.tenth(),
        num_turns=4 if arguments.quick else NUM_TURNS,
        recompute=True if arguments.recompute else None,
        gemm_tflop_s=gemm_tflop_s(device),
    )
    benchmark = Benchmark(bench)
    for part in arguments.part or PARTS:
        benchmark.measure(part)
        say(json.dumps({name: float(f"{value:.4g}") for name, value in benchmark.found.items() if part in name}))
    found = benchmark.found | {"seconds": time.perf_counter() - BEGAN_AT}
    found |= {short: found[name] for short, name in _SHORT.items() if name in found}
    show(found, device)
    if arguments.plot is not None:
        from benchmarks.train_step_plot import plot  # matplotlib is not everywhere

        plot(found, arguments.plot)
    if arguments.json:
        print(json.dumps({name: float(f"{value:.5g}") for name, value in found.items()}))


def _arguments() -> argparse.Namespace:
    made = parser("What a training step on a whole session costs, against the public recipe.")
    made.add_argument("--device", default="cpu", help="cpu or cuda")
    made.add_argument(
        "--part", action="append", choices=(*PARTS, "trl"), help="may be given again; default: all but trl"
    )
    made.add_argument("--recompute", action="store_true", help="our layers too are computed again, whatever fits")
    made.add_argument("--plot", type=Path, default=None, help="PNG of the part `turns`")
    return made.parse_args()


if __name__ == "__main__":
    main()
