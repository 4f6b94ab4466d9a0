"""The trainer's worker process: one order per line on standard input, one report per line on standard output.

python -m openclaw_rl.train --model FOLDER --options '{"device": "auto", "threads": 2}'

It ends when standard input does, so a parent that dies, however it dies, leaves no trainer behind. An order that cannot
be carried out is answered with an error and harms no other. Logs are JSON lines on standard error.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.errors import OpenClawError
from openclaw_rl.logs import JsonLines
from openclaw_rl.train.wire import StepOrder

_NICENESS = 10
"""Whoever chats comes first: beside an engine that is busy the trainer gets about a tenth of a core."""


def main(argv: Sequence[str] | None = None) -> int:
    """Works until standard input ends; the exit status."""
    parser = argparse.ArgumentParser(prog="openclaw_rl.train")
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face folder with safetensors")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON object: device, threads")
    arguments = parser.parse_args(argv)
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[to_stderr], force=True)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "0")  # threads that spin take the core that the chat needs
    os.nice(_NICENESS)
    os.environ["HF_HUB_OFFLINE"] = "1"

    import torch

    from openclaw_rl.train.trainer import Trainer

    options = arguments.options
    if options.get("threads"):
        torch.set_num_threads(options["threads"])
    wanted = options.get("device", "auto")
    device = torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    trainer = Trainer(arguments.model, device=device, dtype=dtype)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no report
    for line in sys.stdin:
        try:
            answer: dict[str, object] = {"report": trainer.step(StepOrder.from_json(json.loads(line))).to_json()}
        except OpenClawError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
