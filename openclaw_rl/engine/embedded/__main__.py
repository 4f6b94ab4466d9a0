"""The embedded engine's worker process: command line -> a served model.

python -m openclaw_rl.engine.embedded --socket PATH --model FOLDER --options '{"threads": 2}'
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.engine.worker.process import run_worker
from openclaw_rl.protocols import Engine


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until told to stop; the exit status."""
    parser = argparse.ArgumentParser(prog="openclaw_rl.engine.embedded")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face folder with safetensors")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON object, see EmbeddedOptions")
    arguments = parser.parse_args(argv)
    # How long OpenMP's threads spin between two products before they sleep; read when torch is loaded. A step of the
    # embedded model on two cores, ms, when they are idle and when one is busy: never 21 and 21, this long 11 and 32,
    # ten times as long 10 and 100. Whoever sets either variable decides.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    _keep_freed_memory()
    os.environ["HF_HUB_OFFLINE"] = "1"  # the folder is complete: no call home, also none to look for updates

    options = EmbeddedOptions.from_json(arguments.options)
    if options.gpu_ids:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, options.gpu_ids))

    def load() -> Engine:
        # Importing torch and transformers takes seconds; here, in the loading thread, the worker already watches
        # whether its parent still lives.
        from openclaw_rl.engine.embedded.loading import load_engine

        return load_engine(arguments.model, options)

    return run_worker(arguments.socket, load)


def _keep_freed_memory() -> None:
    """glibc gives blocks of a megabyte back to the system and asks for them anew at every step.

    Their page faults made drawing eight tokens take 1.5 to 1.8 ms instead of 0.5.
    """
    trim_threshold, mmap_threshold = -1, -3  # names of <malloc.h>
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(mmap_threshold, 32 << 20)
    mallopt(trim_threshold, 256 << 20)


if __name__ == "__main__":
    sys.exit(main())
