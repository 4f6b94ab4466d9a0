"""The worker process of a trainer that computes elsewhere; orders and answers are those of `train/worker`.

python -m openclaw_rl.train.cloud --options '{"access": {…}, "abilities": {…}, "bill": FOLDER, "prices": {…}}'

The key is in the environment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from openclaw_rl.cloud.bill import Prices, Till
from openclaw_rl.cloud.registry import make_service
from openclaw_rl.cloud.service import Abilities, Access
from openclaw_rl.train.cloud.training import CloudTraining
from openclaw_rl.train.wire import Order, Report
from openclaw_rl.train.worker.__main__ import answer_orders, log_json_lines
from openclaw_rl.types import ScoreOrder


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Works until standard input ends."""
    parser = argparse.ArgumentParser(prog="openclaw_rl.train.cloud")
    parser.add_argument("--options", type=json.loads, required=True)
    options = parser.parse_args(argv).options
    log_json_lines()
    prices = Prices(**options["prices"])
    training = CloudTraining(
        make_service(Access.from_json(options["access"])),
        Abilities.from_json(options["abilities"]),
        till=Till(Path(options["bill"]), prices),
        prices=prices,
    )
    runner = asyncio.Runner()

    def carry_out(order: Order, target: str | None) -> Report:
        if isinstance(order, ScoreOrder):
            return runner.run(training.score(order))
        return training.rehearse() if target is None else runner.run(training.step(order, Path(target)))

    answer_orders(carry_out)


if __name__ == "__main__":
    main()
