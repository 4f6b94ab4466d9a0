"""What a training step costs, against the same step in plain transformers and peft, and what chat notices of it.

    python benchmarks/trainer.py [--json] [--quick] [--device cuda] [--model-shape embedded|4b|small] [--threads N]

Four samples with a prompt of 80 tokens and an answer of 90, three hints of 20 tokens to each of them where hints teach,
a LoRA of rank 16 on all linear layers. On a CPU the embedded model in float32, on a GPU one of the shape of Qwen3-4B
with random weights in bfloat16, written to a temporary folder. Each method, and the opponent (`plain_step.py`), runs in
a process of its own, so that its peak of memory is its own. Steps are whole orders, checkpoint included;
`overhead_share` is what of the step itself was neither forward nor backward pass, `checkpoint_share` what of the order
was not the step.

Then the real engine's process streams chat without a pause, one answer after the other, while the real trainer's
process first rests, then takes steps, then rests again. Ends with status 1 if an answer was refused or cut short.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "0")  # as the trainer's worker sets it; before torch is loaded

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.embedded import QWEN3_4B, embedded_folder, parser, prompt_ids, random_network, show
from benchmarks.plain_step import PlainStep
from openclaw_rl.engine.worker.client import SocketEngine
from openclaw_rl.errors import EngineError
from openclaw_rl.model.architecture import MODULES, Architecture, read_architecture
from openclaw_rl.model.weights import save_weights
from openclaw_rl.train.local import LocalTrainer
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import (
    Candidate,
    GenerateRequest,
    Sample,
    Sampling,
    StepOrder,
    VersionSpan,
    WeightsRef,
    sample_id,
)

METHODS = ("binary", "opd", "combine")
NUM_SAMPLES, PROMPT, ANSWER, NUM_HINTS, HINT, CLOSING = 4, 80, 90, 3, 20, 5
CHAT_PROMPT, CHAT_ANSWER = 64, 96
GPU_KV_BYTES = 8 << 30
SHAPES = {
    "4b": QWEN3_4B,
    "small": replace(
        QWEN3_4B, num_layers=4, hidden_size=256, mlp_size=512, num_heads=8, num_kv_heads=4, head_dim=32, vocab_size=8192
    ),
}
"""Of random models; `small` is there to see in seconds that everything runs."""

SETTINGS: Mapping[str, Any] = {
    # Defaults of `training.*`, written out: a machine with a GPU may have torch and nothing else of ours.
    "learning_rate": 3e-4,
    "warmup_steps": 0,
    "num_epochs": 1,  # each takes the same time
    "gradient_accumulation_steps": 1,
    "batching": "tree",
    "micro_batch_tokens": None,
    "clip_grad_norm": 1.0,
    "weight_decay": 0.0,
    "adam_betas": [0.9, 0.999],
    "use_gradient_checkpointing": None,
    "offload_activations": False,
    "loss_per_token": False,
    "anchor_weight": 0.25,
    "logprob_temperature": None,
    "critic": False,
    "teacher": "base",
    "teacher_path": None,
    "teacher_url": None,
    "teacher_model": None,
    "teacher_temperature": 1.0,
    "ema_decay": 0.99,
    "use_lora": True,
    "lora_rank": 16,
    "lora_alpha": 32.0,
    "lora_dropout": 0.0,
    "lora_target_modules": ["all-linear"],
    "custom_loss": None,
    "demonstrations": "turns",
    "distillation": "topk",  # what the opponent computes
    "ppo_clip_ratio": 0.2,
    "ppo_clip_ratio_high": 0.28,
    "top_k": 4,
    "hint_selection": "sequence_optimal",
    "subset_mode": "student",
    "adv_diff_clip": 1.0,
    "kl_coef": 0.0,
    "importance_clip": 2.0,
}


def _figures() -> dict[str, tuple[str, str]]:
    figures: dict[str, tuple[str, str]] = {}
    for method in METHODS:
        figures |= {
            f"{method}_step_s": (f"{method}: one step with its checkpoint, median, s", ""),
            f"{method}_tokens": ("  tokens read by student and teachers", ""),
            f"{method}_tflop": ("  TFLOP of their passes", ""),
            f"{method}_tflop_s": ("  TFLOP/s of the whole step", ""),
            f"{method}_peak_mib": ("  peak memory, MiB (CPU: resident, the mapped weights included)", ""),
            f"{method}_overhead_share": ("  share outside forward and backward", "< 0.10"),
            f"{method}_checkpoint_share": ("  share of the order for its checkpoint", ""),
            f"{method}_plain_s": ("  plain transformers and peft, without a checkpoint, s", ""),
            f"{method}_plain_peak_mib": ("  its peak memory, MiB", ""),
            f"{method}_vs_plain": ("  its seconds over ours, ours without a checkpoint too", "> 1"),
        }
    return figures | {
        "overhead_share": ("the largest share outside forward and backward", "< 0.10"),
        "decode_alone_tok_s": ("chat while nothing is trained, tokens/s", ""),
        "decode_beside_tok_s": ("chat while steps run, tokens/s", ""),
        "decode_share_while_training": ("  the share that is left", ""),
        "longest_gap_alone_ms": ("longest gap between two tokens, nothing trained, ms", ""),
        "longest_gap_ms": ("  while steps run, ms", ""),
        "gap_p99_alone_ms": ("p99 of the gaps, nothing trained, ms", ""),
        "gap_p99_ms": ("  while steps run, ms", ""),
        "step_beside_s": ("a combine step beside chat, median, s", ""),
        "steps_beside": ("steps taken meanwhile", ""),
        "answers": ("answers finished", ""),
        "refused": ("answers refused or cut short", "0"),
        "load_average": ("load average of this machine before the run", ""),
        "seconds": ("length of the run, s", ""),
    }


def make_sample(arch: Architecture, number: int, method: str) -> Sample:
    """Random tokens: no pass takes longer or shorter for what they say."""
    prompt = prompt_ids(arch, PROMPT, seed=number)
    suffixes = [prompt_ids(arch, HINT + CLOSING, seed=1000 * (1 + i) + number) for i in range(NUM_HINTS)]
    candidates = [Candidate(hint="h", num_shared=PROMPT - CLOSING, suffix_ids=tuple(suffix)) for suffix in suffixes]
    reward = 0.0 if method == "opd" else 1.0 - 2.0 * (number % 2)
    return Sample(
        id=sample_id("bench", number, "turn"),
        line="bench",
        kind="turn",
        session="bench",
        index=number,
        prompt_index=number,
        created_at=0.0,
        prompt_ids=tuple(prompt),
        response_ids=tuple(prompt_ids(arch, ANSWER, seed=100 + number)),
        loss_mask=(True,) * ANSWER,
        advantages=(reward,) * ANSWER,
        logprobs=(-8.0,) * ANSWER,
        temperature=0.7,
        on_policy=True,
        reward=reward,
        w_rl=0.0 if method == "opd" else 1.0,
        w_opd=0.0 if method == "binary" else 1.0,
        candidates=() if method == "binary" else tuple(candidates),
        version_spans=(VersionSpan("v0", 0, ANSWER),),
    )


def make_order(folder: Path, arch: Architecture, number: int, method: str) -> StepOrder:
    """Step `number` of a line; its samples are the same in every step."""
    return StepOrder(
        line="bench",
        number=number,
        parent=None if number == 1 else WeightsRef.of_folder(folder / f"v{number - 1}" / "weights", ""),
        parent_number=number - 1,
        seed=0,
        settings=SETTINGS,
        samples=tuple(make_sample(arch, i, method) for i in range(NUM_SAMPLES)),
    )


def tflop_of(arch: Architecture, samples: Sequence[Sample]) -> float:
    """Two per weight and token and pass; the student's way back to the adapter is as long as its way there."""
    in_layers = sum(part.in_features * part.out_features for module in MODULES for part in arch.projections(module))
    in_head = arch.vocab_size * arch.hidden_size

    def one_way(num_prompt: int) -> float:
        return 2.0 * (arch.num_layers * in_layers * (num_prompt + ANSWER - 1) + in_head * ANSWER)

    total = 0.0
    for sample in samples:
        total += 2 * one_way(len(sample.prompt_ids))
        total += sum(one_way(len(sample.teacher_prompt(one))) for one in sample.candidates)
    return total / 1e12


def peak_mib(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_ours(folder: Path, method: str, device: torch.device, num_steps: int) -> dict[str, float]:
    """In a process of its own: one step to warm up, then so many."""
    arch = _architecture(folder)
    trainer = TorchTrainer(folder, device=device, dtype=_dtype(device))
    took: list[float] = []
    inside: list[float] = []
    overhead: list[float] = []
    tokens = 0.0
    with tempfile.TemporaryDirectory() as directory:
        orders = [make_order(Path(directory), arch, number, method) for number in range(1, num_steps + 2)]
        for order in orders:
            began_at = time.perf_counter()
            report = trainer.step(order, Path(directory) / f"v{order.number}")
            took.append(time.perf_counter() - began_at)
            assert report.state == "done", report.reason
            inside.append(report.metrics["step/seconds"])
            overhead.append(report.metrics["step/overhead_share"])
            tokens = report.metrics["step/tokens"]
    step_s, inside_s = median(took[1:]), median(inside[1:])
    tflop = tflop_of(arch, orders[0].samples)
    return {
        "step_s": step_s,
        "inside_s": inside_s,
        "tokens": tokens,
        "tflop": tflop,
        "tflop_s": tflop / step_s,
        "peak_mib": peak_mib(device),
        "overhead_share": median(overhead[1:]),
        "checkpoint_share": 1 - inside_s / step_s,
    }


def measure_plain(folder: Path, method: str, device: torch.device, num_steps: int) -> dict[str, float]:
    """The opponent, in a process of its own."""
    arch = _architecture(folder)
    plain = PlainStep(folder, device=device, dtype=_dtype(device))
    samples = [make_sample(arch, i, method) for i in range(NUM_SAMPLES)]
    took: list[float] = []
    for _ in range(num_steps + 1):
        began_at = time.perf_counter()
        plain.take(samples)
        took.append(time.perf_counter() - began_at)
    return {"plain_s": median(took[1:]), "plain_peak_mib": peak_mib(device)}


def _architecture(folder: Path) -> Architecture:
    found = read_architecture(folder)
    assert found is not None
    return found


def _dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def steps_of(folder: Path, method: str, side: str, arguments: argparse.Namespace) -> dict[str, float]:
    """What a child measured; nothing, with the reason on the screen, if it could not."""
    command = [sys.executable, __file__, "--as", side, "--method", method, "--folder", str(folder)]
    command += ["--device", arguments.device, *(["--quick"] if arguments.quick else [])]
    command += [] if arguments.threads is None else ["--threads", str(arguments.threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{side} {method} could not be measured; its messages are above", file=sys.stderr)
        return {}
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {f"{method}_{name}": value for name, value in found.items()}


def measure_steps(folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    found: dict[str, float] = {}
    for method in METHODS:
        found |= steps_of(folder, method, "ours", arguments)
        found |= steps_of(folder, method, "plain", arguments)
        inside_s = found.pop(f"{method}_inside_s", None)
        if inside_s and f"{method}_plain_s" in found:
            found[f"{method}_vs_plain"] = found[f"{method}_plain_s"] / inside_s
    shares = [found[f"{method}_overhead_share"] for method in METHODS if f"{method}_overhead_share" in found]
    return found | {"overhead_share": max(shares)}


class Chat:
    """One answer after the other, until told to stop; when each token came."""

    def __init__(self, engine: SocketEngine, arch: Architecture) -> None:
        self._engine = engine
        self._arch = arch
        self.arrivals: list[tuple[float, int]] = []
        self.gaps: list[tuple[float, float]] = []
        """(end, length) of every pause between two deltas of one answer."""
        self.num_answers = 0
        self.num_refused = 0
        self.stop = False

    async def talk(self) -> None:
        while not self.stop:
            try:
                size = await self._answer()
            except EngineError:
                self.num_refused += 1
                await asyncio.sleep(0.1)
                continue
            self.num_refused += size != CHAT_ANSWER
            self.num_answers += 1

    async def _answer(self) -> int:
        number = self.num_answers
        request = GenerateRequest(
            request_id=f"chat-{number}",
            token_ids=tuple(prompt_ids(self._arch, CHAT_PROMPT, seed=10_000 + number)),
            sampling=Sampling(max_tokens=CHAT_ANSWER, temperature=1.0, seed=number),
            cache_salt="chat",
        )
        size, last = 0, None
        async for delta in self._engine.generate(request):
            now = time.perf_counter()
            if delta.token_ids:
                self.arrivals.append((now, len(delta.token_ids)))
                self.gaps += [] if last is None else [(now, now - last)]
                size, last = size + len(delta.token_ids), now
        return size

    def tokens_per_s(self, windows: Sequence[tuple[float, float]]) -> float:
        num = sum(size for at, size in self.arrivals if _within(at, windows))
        return num / sum(end - begin for begin, end in windows)

    def gaps_ms(self, windows: Sequence[tuple[float, float]]) -> list[float]:
        return sorted(1000 * length for at, length in self.gaps if _within(at, windows))


def _within(at: float, windows: Sequence[tuple[float, float]]) -> bool:
    return any(begin <= at < end for begin, end in windows)


@asynccontextmanager
async def engine_process(folder: Path, socket: Path, options: Mapping[str, Any]) -> AsyncIterator[SocketEngine]:
    command = (sys.executable, "-m", "openclaw_rl.engine.embedded", "--socket", str(socket), "--model", str(folder))
    async with _process(*command, "--options", json.dumps(options)) as process:
        engine = SocketEngine(socket)
        while True:
            if process.returncode is not None:
                raise RuntimeError("the engine's process ended; its messages are above")
            try:
                await engine.state()
                break
            except EngineError:
                await asyncio.sleep(0.1)
        yield engine
        await engine.close()


@asynccontextmanager
async def _process(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=64 << 20)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # both workers end with their standard input
        await process.wait()


async def ordered(trainer: LocalTrainer, order: StepOrder) -> float:
    """Seconds until the report of a step was there."""
    began_at = time.perf_counter()
    report = await trainer.step(order)
    if report.state != "done":
        raise RuntimeError(f"the trainer took no step: {report.reason}")
    return time.perf_counter() - began_at


async def measure_beside(folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    arch = _architecture(folder)
    common = {"device": arguments.device, "threads": arguments.threads}
    serving = common | ({"kv_bytes": GPU_KV_BYTES} if arguments.device == "cuda" else {})
    window_s, num_steps = (5.0, 2) if arguments.quick else (20.0, 6)
    with tempfile.TemporaryDirectory() as directory:
        versions = Path(directory)
        async with (
            engine_process(folder, versions / "engine.sock", serving) as engine,
        ):
            training = LocalTrainer(folder, versions, common)
            orders = [make_order(versions, arch, number, "combine") for number in range(1, num_steps + 2)]
            await ordered(training, orders[0])
            chat = Chat(engine, arch)
            talking = asyncio.create_task(chat.talk())
            await asyncio.sleep(window_s / 4)
            alone = [await _window(window_s)]
            begin = time.perf_counter()
            took = [await ordered(training, order) for order in orders[1:]]
            beside = [(begin, time.perf_counter())]
            alone.append(await _window(window_s))
            chat.stop = True
            await talking
            await training.close()
    alone_ms, beside_ms = chat.gaps_ms(alone), chat.gaps_ms(beside)
    if not alone_ms or not beside_ms:
        raise RuntimeError("no token of an answer fell into a window; run without --quick")
    return {
        "decode_alone_tok_s": chat.tokens_per_s(alone),
        "decode_beside_tok_s": chat.tokens_per_s(beside),
        "decode_share_while_training": chat.tokens_per_s(beside) / chat.tokens_per_s(alone),
        "longest_gap_alone_ms": alone_ms[-1],
        "longest_gap_ms": beside_ms[-1],
        "gap_p99_alone_ms": alone_ms[int(len(alone_ms) * 0.99)],
        "gap_p99_ms": beside_ms[int(len(beside_ms) * 0.99)],
        "step_beside_s": median(took),
        "steps_beside": len(took),
        "answers": chat.num_answers,
        "refused": chat.num_refused,
    }


async def _window(seconds: float) -> tuple[float, float]:
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    return begin, time.perf_counter()


def random_folder(directory: Path, arch: Architecture, device: torch.device) -> Path:
    """A checkpoint of this shape, as the workers load it."""
    from transformers import Qwen3Config

    described = Qwen3Config(
        vocab_size=arch.vocab_size,
        hidden_size=arch.hidden_size,
        intermediate_size=arch.mlp_size,
        num_hidden_layers=arch.num_layers,
        num_attention_heads=arch.num_heads,
        num_key_value_heads=arch.num_kv_heads,
        head_dim=arch.head_dim,
        max_position_embeddings=arch.context_window,
        rms_norm_eps=arch.rms_eps,
        rope_parameters={"rope_type": "default", "rope_theta": arch.rope.theta},
        tie_word_embeddings=arch.tied_head,
        architectures=["Qwen3ForCausalLM"],
        dtype="bfloat16",
    )
    described.save_pretrained(directory / "described")
    network = random_network(arch, device=device, dtype=torch.bfloat16)
    save_weights(network.weights, arch, directory / "model", source=directory / "described")
    return directory / "model"


def be_a_child(arguments: argparse.Namespace) -> None:
    """Measures one side of one method and prints it as one line."""
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    measure = measure_ours if arguments.side == "ours" else measure_plain
    found = measure(arguments.folder, arguments.method, torch.device(arguments.device), 2 if arguments.quick else 5)
    print(json.dumps(found))


def main() -> int:
    options = parser("Measure training steps, and chat beside them.")
    options.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA where it is")
    options.add_argument(
        "--model-shape", choices=("embedded", *SHAPES), default=None, help="embedded on a CPU, 4b on a GPU"
    )
    options.add_argument("--as", dest="side", choices=("ours", "plain"), default=None, help=argparse.SUPPRESS)
    options.add_argument("--method", choices=METHODS, default=METHODS[-1], help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, default=None, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.device == "auto":
        arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    if arguments.side is not None:
        be_a_child(arguments)
        return 0
    shape = arguments.model_shape or ("4b" if arguments.device == "cuda" else "embedded")
    began_at, load_average = time.monotonic(), os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory() as directory:
            if shape == "embedded":
                folder = embedded_folder()
            else:
                folder = random_folder(Path(directory), SHAPES[shape], torch.device(arguments.device))
                if arguments.device == "cuda":
                    torch.cuda.empty_cache()
            found = measure_steps(folder, arguments)
            found |= asyncio.run(measure_beside(folder, arguments))
    except (RuntimeError, OSError) as error:
        print(f"the benchmark failed: {error}", file=sys.stderr)
        return 1
    found |= {"load_average": load_average, "seconds": time.monotonic() - began_at}
    print(
        f"{NUM_SAMPLES} samples: prompt {PROMPT}, answer {ANSWER}, {NUM_HINTS} hints of {HINT} tokens; shape {shape}, "
        f"on {arguments.device}"
    )
    show(_figures(), found, as_json=arguments.json)
    return 1 if found["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
