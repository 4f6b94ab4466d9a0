"""Adapters that our trainer saved, served by vLLM: does it say what our own network says?

    python benchmarks/vllm_adapter.py [--json] [--quick] [--threads N]

On a CPU. The trainer takes steps on the embedded model, once for each preset of target modules; vLLM, in an environment
of its own (`opponents.py`), serves the model with these adapters and is asked for the log-probs of a fixed text, with
each adapter and without. Both sides compute in float32: what is left between them is rounding, and has to be small
beside what the adapters change. A gap is the largest over all tokens of the text, in millionths of a nat.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.embedded import architecture, embedded_folder, parser, show
from benchmarks.opponents import OutOfTheRace, Running, VllmCpu, running
from openclaw_rl.config import TrainingConfig
from openclaw_rl.model.adapter import AdapterWeights, LoraRows
from openclaw_rl.model.network import Lora, Network
from openclaw_rl.model.weights import load_weights
from openclaw_rl.train.passes.plain import response_rows
from openclaw_rl.train.passes.sequences import Sequenced
from openclaw_rl.train.worker.checkpoint import WEIGHTS
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Candidate, Sample, StepOrder, VersionSpan, WeightsRef

CPU = torch.device("cpu")
BASE = "model"
PRESETS: Mapping[str, Sequence[str]] = {
    "all": ("all-linear",),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
}
NUM_STEPS = 3
LESSONS = (
    ("Why is the sky blue?", "Because air scatters blue light more than red light, from every direction."),
    ("What is gravity?", "A force by which masses attract each other, and what keeps us on the ground."),
)
HINT = "Answer in one short sentence."
TEXT = (
    "A library lends books to people who promise to bring them back. The first ones belonged to kings and temples; "
    "most of those that we know today belong to a town or a school, and nobody has to pay to read there."
)

FIGURES = {
    "base_gap": ("no adapter: vLLM beside our network, 1e-6 nat", ""),
    **{
        f"{name}_{key}": (label, bar)
        for name in PRESETS
        for key, label, bar in (
            ("change", f"{name}: what the adapter changes in our network, 1e-6 nat", ""),
            ("gap", f"{name}: vLLM beside our network, both with the adapter, 1e-6 nat", "<= 1000"),
            ("change_vs_gap", f"{name}:   the change over that", ">= 100"),
        )
    },
}


class WithAdapters(VllmCpu):
    """vLLM with adapters beside the model, each by its name."""

    def __init__(self, model: Path, adapters: Mapping[str, Path]) -> None:
        super().__init__(model)
        self._adapters = adapters

    def command(self, *, port: int, threads: int) -> list[str]:
        named = [f"{name}={folder}" for name, folder in self._adapters.items()]
        lora = ["--enable-lora", f"--max-loras={len(named)}", "--max-lora-rank=16", "--lora-modules", *named]
        # Compiling, its default, takes minutes; here a text is read a few times.
        return [*super().command(port=port, threads=threads), "--enforce-eager", *lora]

    def question(self, prompt: Sequence[int], num_tokens: int) -> dict[str, Any]:
        asked = {"max_tokens": num_tokens, "temperature": 0, "prompt_logprobs": 0}
        return {"model": BASE, "prompt": list(prompt), **asked}


def lesson(index: int, tokenizer: Tokenizer) -> Sample:
    """A short answer that was praised, and a hint."""
    question, answer = LESSONS[index % len(LESSONS)]
    prompt_ids, hint_ids, response_ids = (tuple(tokenizer.encode(text).ids) for text in (question, HINT, answer))
    size = len(response_ids)
    return Sample(
        id=f"lesson {index}",
        line="local",
        kind="turn",
        session="s",
        index=index,
        prompt_index=index,
        created_at=0.0,
        prompt_ids=prompt_ids,
        response_ids=response_ids,
        loss_mask=(True,) * size,
        advantages=(1.0,) * size,
        logprobs=None,
        temperature=1.0,
        on_policy=True,
        reward=1.0,
        w_rl=1.0,
        w_opd=1.0,
        candidates=(Candidate(hint=HINT, num_shared=len(prompt_ids), suffix_ids=hint_ids),),
        version_spans=(VersionSpan("v0", 0, size),),
    )


def train(model: Path, targets: Sequence[str], folder: Path, *, num_steps: int) -> Path:
    """The adapter behind some steps."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    trainer = TorchTrainer(model, device=CPU, dtype=torch.float32)
    settings = json.loads(TrainingConfig(lora_target_modules=tuple(targets)).model_dump_json())
    folder.mkdir()
    parent: Path | None = None
    for number in range(1, num_steps + 1):
        target = folder / f"v{number}"
        report = trainer.step(
            StepOrder(
                line="local",
                number=number,
                parent=None if parent is None else WeightsRef.of_folder(parent / WEIGHTS, ""),
                parent_number=number - 1,
                seed=0,
                settings=settings,
                samples=tuple(lesson(index, tokenizer) for index in range(len(LESSONS))),
            ),
            target,
        )
        if report.state != "done":
            sys.exit(f"step {number} was discarded: {report.reason}")
        parent = target
    assert parent is not None
    return parent / WEIGHTS


def ours(network: Network, ids: Sequence[int], folder: Path | None) -> Tensor:
    """The log-prob of every token but the first, behind those before it."""
    sequence = Sequenced(tuple(ids[:1]), tuple(ids[1:]))
    lora: Lora | None = None
    if folder is not None:
        adapter = AdapterWeights.load(folder, network.arch, device=CPU, dtype=torch.float32)
        lora = LoraRows([(slice(0, len(sequence)), adapter)])
    with torch.no_grad():
        (rows,) = response_rows(network, [sequence], lora)
        return network.logits(rows).log_softmax(-1).gather(-1, torch.tensor(ids[1:]).unsqueeze(-1))[:, 0]


async def theirs(rival: Running, ids: Sequence[int], name: str) -> Tensor:
    """The same from vLLM."""
    answer = await rival.ask({**rival.opponent.question(ids, 1), "model": name})
    found = answer["choices"][0]["prompt_logprobs"][1:]
    return torch.tensor([told[str(token)]["logprob"] for token, told in zip(ids[1:], found, strict=True)])


def largest(difference: Tensor) -> float:
    return float(difference.abs().max()) * 1e6


async def compare(model: Path, adapters: Mapping[str, Path], *, threads: int) -> dict[str, float]:
    arch = architecture()
    network = Network(arch, load_weights(model, arch, device=CPU, dtype=torch.float32))
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(TEXT).ids
    before = ours(network, ids, None)
    async with running(WithAdapters(model, adapters), threads=threads) as rival:
        found = {"base_gap": largest(await theirs(rival, ids, BASE) - before)}
        for name, folder in adapters.items():
            after = ours(network, ids, folder)
            change, gap = largest(after - before), largest(await theirs(rival, ids, name) - after)
            found |= {f"{name}_change": change, f"{name}_gap": gap, f"{name}_change_vs_gap": change / gap}
    return found


def main() -> None:
    arguments = parser("Adapters of our trainer in vLLM.").parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    num_steps = 1 if arguments.quick else NUM_STEPS
    with tempfile.TemporaryDirectory() as work:
        model = embedded_folder()
        adapters = {
            name: train(model, targets, Path(work) / name, num_steps=num_steps) for name, targets in PRESETS.items()
        }
        try:
            found = asyncio.run(compare(model, adapters, threads=torch.get_num_threads()))
        except OutOfTheRace as reason:
            sys.exit(f"vLLM was not asked: it {reason}")
    show(FIGURES, found, as_json=arguments.json)


if __name__ == "__main__":
    main()
