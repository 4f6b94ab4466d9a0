"""One rank of the trainer: joins the group that its environment names, and carries out orders with the others.

    in    {"order": FILE, "report": FILE, "target": FOLDER}     rank 0 alone; as of `openclaw_rl.train.worker`
    out   {"ready": true}, {"done": true}, {"error": "why not"} rank 0; another one that fails says {"lost": "why"}

    python -m openclaw_rl.train.fsdp --model FOLDER --options '{"device": "auto", "threads": 1, "num_local": 2}'
    torchrun --nproc-per-node 8 -m openclaw_rl.train.fsdp --join ADDRESS --key-file FILE      orders from joining.py

The environment has RANK, WORLD_SIZE and LOCAL_RANK; the ranks meet at the file `--meet`, or at MASTER_ADDR and
MASTER_PORT as torchrun sets them. Rank 0 passes every order on. An order that fails in all ranks alike is answered with
an error and harms no other; what fails in one rank alone ends this process, and whoever started it ends the others.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from openclaw_rl.errors import OpenClawError, TrainerLost, TrainError
from openclaw_rl.logs import JsonLines
from openclaw_rl.train.fsdp.joining import Joined
from openclaw_rl.train.wire import Report, parse_order, write_report
from openclaw_rl.train.worker.__main__ import MAX_ERROR, carried_out, give_way, receive

if TYPE_CHECKING:
    import torch

    from openclaw_rl.train.fsdp.ranks import Ranks
    from openclaw_rl.train.worker.trainer import TorchTrainer

_log = logging.getLogger(__name__)


class Employer(Protocol):
    """Who gives rank 0 its orders."""

    def next_order(self) -> tuple[str, str | None]:
        """The next order's text, and where its checkpoint goes."""
        ...

    def answer(self, report: Report | str) -> None:
        """What came of it: a report, or why there is none."""
        ...


class Pipe:
    """Orders come as lines on standard input, as files' names; whoever closes it ends this process."""

    def __init__(self) -> None:
        self._lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=receive, args=(self._lines,), daemon=True).start()
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no report
        self._line: Mapping[str, Any] = {}

    def say(self, answer: Mapping[str, object]) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)

    def lost(self, why: str) -> None:
        """The last words of this process."""
        self.say({"lost": why})

    def next_order(self) -> tuple[str, str | None]:
        self._line = json.loads(self._lines.get())
        return Path(self._line["order"]).read_text(encoding="utf-8"), self._line["target"]

    def answer(self, report: Report | str) -> None:
        if isinstance(report, str):
            self.say({"error": report[:MAX_ERROR]})
            return
        write_report(Path(self._line["report"]), report)
        self.say({"done": True})


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Works until whoever gives the orders is gone."""
    parser = argparse.ArgumentParser(prog="openclaw_rl.train.fsdp")
    parser.add_argument(
        "--model", type=Path, help="a Hugging Face folder with safetensors; with --join, if it is another than there"
    )
    parser.add_argument(
        "--options", type=json.loads, default={}, help="JSON object: device, dtype, threads, gpu_ids, shrink, num_local"
    )
    parser.add_argument("--meet", type=Path, help="a file that all ranks of this machine meet at")
    parser.add_argument("--join", metavar="ADDRESS", help="take orders from there: HOST:PORT, or a socket's path")
    parser.add_argument("--key-file", type=Path, help="a copy of DATA_DIR/trainer.key of the system that is joined")
    arguments = parser.parse_args(argv)
    if (arguments.join is None) == (arguments.meet is None) or (arguments.join is None) != (arguments.key_file is None):
        parser.error("give --join with --key-file; --meet is for whoever starts these processes by a pipe")
    if "RANK" not in os.environ:
        parser.error(
            "start it with torchrun --nproc-per-node N -m openclaw_rl.train.fsdp …, or `openclaw-rl worker trainer`"
        )
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[to_stderr], force=True)
    give_way()
    os.environ["HF_HUB_OFFLINE"] = "1"
    employer: Pipe | Joined | None = None
    why: str | None = None
    try:
        if arguments.join is None:
            employer = Pipe()
        elif os.environ["RANK"] == "0":
            key = arguments.key_file.read_text(encoding="utf-8").strip()
            try:
                employer = Joined(arguments.join, key, world_size=int(os.environ["WORLD_SIZE"]))
            except TrainerLost:
                raise
            except TrainError as error:
                why = str(error)
        trainer, ranks = _meet(arguments, employer, why)
        serve(trainer, ranks, employer)
    except (OpenClawError, OSError, RuntimeError) as error:
        _log.exception("this rank of the trainer ends")
        if employer is not None:
            with suppress(TrainerLost):
                employer.lost(str(error)[:MAX_ERROR])
        os._exit(1)  # and not through destructors that wait for the other ranks


def serve(trainer: TorchTrainer, ranks: Ranks, employer: Employer | None) -> NoReturn:
    """Orders, one after the other, which rank 0 takes; `TrainerLost` if this rank cannot go on."""
    first = employer if ranks.number == 0 else None
    if isinstance(first, Pipe):
        first.say({"ready": True})
    while True:
        text, target = (None, None) if first is None else first.next_order()
        told = ranks.from_first(None if text is None else f"{json.dumps(target)}\n{text}")
        target, *lines = told.splitlines()
        report: Report | None = None
        failed: str | None = None
        try:
            report = carried_out(trainer, parse_order(lines), json.loads(target))
        except TrainerLost:
            raise
        except (OpenClawError, OSError) as error:
            failed = str(error)
        except Exception as error:
            # The boundary of an order: a loss of somebody's own that fails is an order that cannot be carried out so.
            _log.exception("an order failed")
            failed = repr(error)
        failed = ranks.settle(failed)
        if first is not None:
            answer = failed or report
            assert answer is not None
            first.answer(answer)


def refuse(why: str, *, is_first: bool) -> NoReturn:
    """Ends a rank of processes that are not wanted as they are. torchrun starts processes again that fail, until it has
    done so as often as it may: these end well, as starting them again would help nobody."""
    if is_first:
        sys.stderr.write(f"openclaw-rl: these processes cannot join: {why}\n")
        sys.stderr.flush()
    most, done = (int(os.environ.get(f"TORCHELASTIC_{name}", 0)) for name in ("MAX_RESTARTS", "RESTART_COUNT"))
    os._exit(0 if done < most else 1)


def _meet(arguments: argparse.Namespace, employer: Pipe | Joined | None, why: str | None) -> tuple[TorchTrainer, Ranks]:
    """The group of ranks; those that joined learn from the first what to do it with, or `why` they cannot."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore, PrefixStore, Store
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.rendezvous import rendezvous

    from openclaw_rl.train.fsdp.meeting import answer, call
    from openclaw_rl.train.fsdp.ranks import Ranks
    from openclaw_rl.train.fsdp.students import open_sharded
    from openclaw_rl.train.worker.trainer import TorchTrainer

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    store: Store
    if arguments.meet is None:
        store, rank, size = next(iter(rendezvous("env://", rank, size)))
    else:
        store = FileStore(str(arguments.meet), size)
    model, options = arguments.model, arguments.options
    if arguments.join is not None:
        words: Mapping[str, Any] = {"refused": why}
        if isinstance(employer, Joined):
            words = {"model": str(model or employer.model), "options": {**employer.options, **options}}
        if rank == 0:
            store = call(store, size, words)
        else:
            store, words = answer(store, rank)
        if "refused" in words:
            refuse(words["refused"], is_first=rank == 0)
        model, options = Path(words["model"]), words["options"]
    device = device_of(options, local=int(os.environ.get("LOCAL_RANK", rank)))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    threads = options.get("threads") or (os.cpu_count() or 1 if device.type == "cpu" else None)
    if threads:
        torch.set_num_threads(max(1, threads // num_local))
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=PrefixStore("group", store), rank=rank, world_size=size)
    ranks = Ranks(PrefixStore("orders", store))
    is_narrow = device.type == "cuda" and options.get("dtype") != "float32"
    dtype = torch.bfloat16 if is_narrow else torch.float32
    mesh = init_device_mesh(device.type, (size,))
    assert model is not None
    trainer = TorchTrainer(
        model,
        device=device,
        dtype=dtype,
        shrink=options.get("shrink", 1),
        crew=ranks,
        open_model=partial(open_sharded, mesh=mesh, device=device, dtype=dtype, crew=ranks),
        num_sharing=1 if device.type == "cuda" else num_local,
    )
    return trainer, ranks


def device_of(options: Mapping[str, Any], *, local: int) -> torch.device:
    """Of rank `local` of this machine; `TrainerLost` if there is none."""
    import torch

    wanted, gpu_ids = options.get("device", "auto"), options.get("gpu_ids") or ()
    have, asked = torch.cuda.device_count(), gpu_ids[local] if local < len(gpu_ids) else local
    if wanted == "cpu" or (wanted == "auto" and not have):
        return torch.device("cpu")
    if asked >= have:
        raise TrainerLost(
            f"rank {local} of this machine trains on GPU {asked}, and torch sees {have} of them; set "
            f"training.gpus_per_node or training.gpu_ids to what there is, or training.device=cpu"
        )
    return torch.device("cuda", asked)


if __name__ == "__main__":
    main()
