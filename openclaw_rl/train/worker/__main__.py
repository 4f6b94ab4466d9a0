"""The trainer's worker process: a line on standard input names an order, a line on standard output answers it.

    in    {"order": FILE, "report": FILE, "target": FOLDER}     the files are those of wire.py; a step without a target
                                                                is a rehearsal
    out   {"done": true}, and the report is there               or {"error": "why not"}

python -m openclaw_rl.train.worker --model FOLDER --options '{"device": "auto", "threads": 2}'

Its first line says that it is ready. It ends at once when standard input does, in the middle of a step too: a parent
that dies, however it dies, leaves no trainer behind that writes where the next one does. An order that cannot be
carried out is answered with an error and harms no other. Logs are JSON lines on standard error.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NoReturn

from openclaw_rl.errors import OpenClawError
from openclaw_rl.logs import JsonLines
from openclaw_rl.train.wire import TEACHER_KEY, Order, Report, read_order, write_report
from openclaw_rl.types import ScoreOrder

if TYPE_CHECKING:
    from openclaw_rl.train.worker.trainer import TorchTrainer

MAX_ERROR = 4000
NICENESS = 6
"""Whoever chats comes first, and learning never starves: beside an engine that is busy the trainer gets a fifth of each
core. In the kernel's table of weights level 6 has 272 and level 0 has 1024: 272 of 1296 are 21 %; a level more or less
is a quarter more or less."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Works until standard input ends."""
    parser = argparse.ArgumentParser(prog="openclaw_rl.train.worker")
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face folder with safetensors")
    parser.add_argument(
        "--options", type=json.loads, default={}, help="JSON object: device, dtype, threads, gpu_ids, shrink"
    )
    arguments = parser.parse_args(argv)
    log_json_lines()
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "0")  # threads that spin take the core that the chat needs
    give_way()
    os.environ["HF_HUB_OFFLINE"] = "1"
    options = arguments.options
    if options.get("gpu_ids"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, options["gpu_ids"]))

    import torch

    from openclaw_rl.train.worker.trainer import TorchTrainer

    if options.get("threads"):
        torch.set_num_threads(options["threads"])
    wanted = options.get("device", "auto")
    if options.get("gpu_ids") and wanted != "cpu" and not torch.cuda.is_available():
        named = ",".join(map(str, options["gpu_ids"]))
        sys.exit(f"training.gpu_ids names {named}, and torch sees no such GPU; name one that is there, or none")
    if wanted == "cuda" and not torch.cuda.is_available():
        sys.exit("training.device is cuda, but torch sees no CUDA device; use training.device=auto or cpu")
    device = torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
    is_narrow = device.type == "cuda" and options.get("dtype") != "float32"
    dtype = torch.bfloat16 if is_narrow else torch.float32
    key = os.environ.pop(TEACHER_KEY, None)
    trainer = TorchTrainer(
        arguments.model, device=device, dtype=dtype, shrink=options.get("shrink", 1), teacher_key=key
    )
    answer_orders(lambda order, target: carried_out(trainer, order, target))


def log_json_lines() -> None:
    """On standard error."""
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[to_stderr], force=True)


def answer_orders(carry_out: Callable[[Order, str | None], Report]) -> NoReturn:
    """Says that it is ready, and carries out one order after another."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no report
    orders: SimpleQueue[str] = SimpleQueue()
    Thread(target=receive, args=(orders,), daemon=True).start()
    answer: dict[str, object] = {"ready": True}
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        line = json.loads(orders.get())
        try:
            order = read_order(Path(line["order"]))
            write_report(Path(line["report"]), carry_out(order, line["target"]))
            answer = {"done": True}
        except (OpenClawError, OSError) as error:
            answer = {"error": str(error)[:MAX_ERROR]}
        except Exception as error:
            # The boundary of an order: a loss of somebody's own that fails is an order that cannot be carried out so.
            logging.getLogger(__name__).exception("an order failed")
            answer = {"error": repr(error)[:MAX_ERROR]}


def carried_out(trainer: TorchTrainer, order: Order, target: str | None) -> Report:
    """What comes of an order; a step without a target is a rehearsal."""
    if isinstance(order, ScoreOrder):
        return trainer.score(order)
    return trainer.rehearse(order) if target is None else trainer.step(order, Path(target))


def give_way() -> None:
    """Lowers the weight of this process, and that of its session.

    This process leads a session of its own. Where the kernel groups by sessions (`sched_autogroup_enabled`) it weighs
    those against each other, and a process's own level counts within its session alone.
    """
    os.nice(NICENESS)
    with suppress(OSError):  # another kernel, or a container that may not
        Path("/proc/self/autogroup").write_text(str(NICENESS), encoding="ascii")


def receive(orders: SimpleQueue[str]) -> None:
    """Passes orders on until there is nobody left to give one: then what is being computed is of no use either."""
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
