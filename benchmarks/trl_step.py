"""The turns of a session through TRL's GRPO trainer, the nearest that it has: seconds of one optimiser step.

TRL is no dependency: it is imported here only, and `train_step.py --part trl` says so where it is missing. The same
shape in transformers, a LoRA by peft of the same rank, every setting that does not have to differ as TRL has it. Its
`rollout_func` hands over prompts and answers that are there already, one group of two at a time, so that a step has no
generation in it: one forward and backward pass over each turn, the batch padded as TRL does, no teacher, no old policy.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from datasets import Dataset  # type: ignore[import-not-found]
from peft import LoraConfig
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

from benchmarks.trainer import random_folder
from openclaw_rl.model.network import Network
from openclaw_rl.types import Sample


class _Steps(TrainerCallback):
    """When each step began and ended."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began_at = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began_at = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._began_at)


def time_trl(network: Network, samples: Sequence[Sample], *, rank: int) -> float:
    """The second of two steps on all samples."""
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as directory:
        folder = random_folder(Path(directory), network.arch, network.device)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=network.dtype)
        steps = _Steps()
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=lambda prompts, **_: [1.0 - 2.0 * (at % 2) for at in range(len(prompts))],
            args=_config(directory, len(samples), network.device),
            train_dataset=Dataset.from_dict({"prompt": [str(number) for number in range(len(samples))]}),
            processing_class=_tokenizer(network.arch.vocab_size),
            peft_config=LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"),
            callbacks=[steps],
            rollout_func=lambda prompts, _: _rollout(samples, len(prompts)),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return steps.seconds[-1]


def _config(directory: str, num_turns: int, device: torch.device) -> GRPOConfig:
    return GRPOConfig(
        output_dir=directory,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=num_turns,
        num_generations=2,
        max_steps=2,
        beta=0.0,
        bf16=device.type == "cuda",
        use_cpu=device.type == "cpu",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        max_completion_length=max(1, num_turns),  # of generation, of which there is none
    )


def _rollout(samples: Sequence[Sample], num: int) -> dict[str, list[list[Any]]]:
    assert num == len(samples), f"a step has {num} turns, not {len(samples)}"
    return {
        "prompt_ids": [list(sample.prompt_ids) for sample in samples],
        "completion_ids": [list(sample.response_ids) for sample in samples],
        "logprobs": [list(sample.logprobs or ()) for sample in samples],
    }


def _tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """Any that knows every id."""
    words = {f"w{number}": number for number in range(vocab_size)}
    core = Tokenizer(models.WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="w1", eos_token="w2", unk_token="w0")
