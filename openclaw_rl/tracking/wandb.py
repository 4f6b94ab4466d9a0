"""Steps -> Weights & Biases: a run for each line, under DIR/wandb, and on the server where the mode is online.

A run begins with the first step of its line. Only metrics and the numbers of the section `training` are sent: no
console, no code, no names of people, machines or folders. The package's errors are reported to nobody.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from openclaw_rl.tracking.observers import SeriesObserver
from openclaw_rl.types import LOCAL_USER, Json, Step

if TYPE_CHECKING:
    import wandb

INIT_S = 30.0
"""How long a server that does not answer is waited for at the start of a run."""

FINISH_S = 5.0
"""And at its end; what did not get there stays in DIR/wandb, and `wandb sync` sends it later."""


class WandbObserver(SeriesObserver):
    """The package is imported with the first step: that takes most of a second, and starts a process of its own."""

    name = "Weights & Biases"

    def __init__(
        self,
        *,
        mode: Literal["offline", "online"],
        folder: Path,
        project: str,
        run_name: str,
        api_key: str | None,
        facts: Mapping[str, Json],
        init_s: float = INIT_S,
        finish_s: float = FINISH_S,
    ) -> None:
        super().__init__()
        self._mode = mode
        self._folder = folder
        self._project = project
        self._run_name = run_name
        self._api_key = api_key
        self._init_s = init_s
        self._finish_s = finish_s
        self._facts = facts
        self._runs: dict[str, wandb.Run] = {}

    def put(self, step: Step, metrics: Mapping[str, float]) -> None:
        if step.line not in self._runs:
            self._runs[step.line] = self._begin(step.line)
        self._runs[step.line].log({"step": step.number, **metrics})

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()

    def _begin(self, line: str) -> wandb.Run:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Read when the package is imported.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        os.environ.setdefault("WANDB_CACHE_DIR", str(self._folder / "wandb" / "cache"))
        import wandb

        whose = "" if line == LOCAL_USER else f"-{hashlib.sha256(line.encode()).hexdigest()[:8]}"
        settings = wandb.Settings(
            mode=self._mode,
            root_dir=str(self._folder),
            project=self._project,
            api_key=self._api_key,
            init_timeout=self._init_s,
            finish_timeout=self._finish_s,  # also of what the package does when the interpreter ends
            run_name=self._run_name + whose,
            reinit="create_new",  # lines learn side by side
            host="openclaw-rl",
            console="off",
            silent=True,
            save_code=False,
            disable_git=True,
            disable_job_creation=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        run = wandb.init(config=dict(self._facts), settings=settings)
        run.define_metric("*", step_metric="step")
        return run
