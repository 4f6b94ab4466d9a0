"""Named places where a test may kill this process, as if the power of the process went out right there.

    OPENCLAW_RL_CRASH_AT=store.before_commit:3  openclaw-rl up      dies at the third pass of that place

Sends SIGKILL: no `finally`, no flush, no atexit. This is the one reader of the environment outside `config.py`,
because it is a switch for fault injection and not a setting: nobody should find it in a configuration file.
"""

from __future__ import annotations

import itertools
import os
import signal

CRASH_POINTS: tuple[str, ...] = (
    "store.in_migration",
    "store.before_begin",
    "store.mid_batch",
    "store.before_commit",
    "store.after_commit",
    "store.in_checkpoint",
    "gateway.accepted",
    "gateway.first_token",
    "gateway.mid_stream",
    "gateway.engine_done",
    "gateway.committed_before_last_byte",
    "gateway.replied",
    "store.in_judgement",
    "store.in_credit",
    "judge.leased",
    "judge.judged",
    "credit.leased",
    "train.planned",
    "train.reported",
    "store.in_step",
    "train.finished",
    "trainer.ordered",
    "trainer.moved",
    "trainer.in_checkpoint",
    "trainer.before_rename",
    "trainer.renamed",
    "release.published",
    "release.measured",
    "release.marked",
    "release.live",
)
"""Every place that `crash_point` is called with. Tests run through this list, so a new place is tested at once."""

_armed, _, _at_pass = os.environ.get("OPENCLAW_RL_CRASH_AT", "").partition(":")
_passes = itertools.count(1)

if _armed and (_armed not in CRASH_POINTS or not (_at_pass or "1").isdigit()):
    raise ValueError(f"OPENCLAW_RL_CRASH_AT must be NAME or NAME:COUNT with NAME one of {', '.join(CRASH_POINTS)}")


def crash_point(name: str) -> None:
    """Die here if this is the place, and the pass, that OPENCLAW_RL_CRASH_AT names."""
    assert name in CRASH_POINTS, f"{name!r} is not registered in CRASH_POINTS"
    if name == _armed and next(_passes) >= int(_at_pass or "1"):
        os.kill(os.getpid(), signal.SIGKILL)
