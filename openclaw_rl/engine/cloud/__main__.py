"""The worker process of an engine that computes elsewhere: command line -> a served model.

python -m openclaw_rl.engine.cloud --socket PATH --options '{"access": {…}, "abilities": {…}, "model": {…}, …}'

The key is in the environment. Nothing is asked of the service before the first request, so that a gateway also starts
while the service is away.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.cloud.bill import Prices, Till
from openclaw_rl.cloud.registry import make_service
from openclaw_rl.cloud.service import Abilities, Access
from openclaw_rl.engine.cloud.engine import CloudEngine, FarModel
from openclaw_rl.engine.worker.process import run_worker


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until told to stop; the exit status."""
    parser = argparse.ArgumentParser(prog="openclaw_rl.engine.cloud")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--options", type=json.loads, required=True)
    arguments = parser.parse_args(argv)
    options = arguments.options
    access = Access.from_json(options["access"])

    def load() -> CloudEngine:
        service = make_service(access)
        return CloudEngine(
            service.sampler(),
            Abilities.from_json(options["abilities"]),
            FarModel(**{**options["model"], "stop_ids": tuple(options["model"]["stop_ids"])}),
            place=access.place,
            till=Till(Path(options["bill"]), Prices()),
            max_active=options["max_active"],
            context_window=options["context_window"],
            close_service=service.close,
        )

    return run_worker(arguments.socket, load)


if __name__ == "__main__":
    sys.exit(main())
