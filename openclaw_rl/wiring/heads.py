"""Makes the heads that are shipped: `python -m openclaw_rl.wiring.heads [--model NAME]`.

Starts the embedded engine, reads every labelled reaction once (four minutes on two cores), and writes grams.npz and
NAME.npz into judge/heads/. Says how they do on the check set.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from openclaw_rl.config import Config, load_config
from openclaw_rl.engine.registry import make_host
from openclaw_rl.judge.heads.check import Passed
from openclaw_rl.judge.heads.examples import EXAMPLES, load
from openclaw_rl.judge.heads.fit import check_heads, fit_for
from openclaw_rl.judge.heads.model import GRAMS_FILE, GramHeads, Heads, model_digest, shipped_file
from openclaw_rl.judge.heads.states import States, middle_layer
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import HiddenReader
from openclaw_rl.render import load_renderer


async def ship(config: Config) -> Passed:
    """Fits both kinds on all examples, and writes them."""
    files = resolve_model(config.model)
    renderer = load_renderer(files.path, files.name, files.tokenizer_path)
    with tempfile.TemporaryDirectory(prefix="heads-") as folder:
        host = make_host(config.engine, files, Path(folder) / "engine.sock")
        running = asyncio.create_task(host.run())
        try:
            await host.wait_ready()
            assert isinstance(host.engine, HiddenReader)
            states = States(host.engine, renderer, layer=middle_layer(files.path), timeout_s=600.0)
            await asyncio.to_thread(GramHeads.fitted(load(EXAMPLES)).save, GRAMS_FILE)
            heads = Heads(GramHeads.shipped(), await fit_for(states, budget_s=None))
            heads.hidden.save(shipped_file(files.name), model=model_digest(files.path))
            return await check_heads(heads, states)
        finally:
            await host.stop()
            await running


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the heads that are shipped.")
    parser.add_argument("--model", default=None, help="fit for this model instead of the embedded one")
    name = parser.parse_args().model
    config = load_config(overrides=[] if name is None else [f"model.name={name}"]).config
    sys.stdout.write(f"{asyncio.run(ship(config))}\n")


if __name__ == "__main__":
    main()
