"""This process's environment -> that of a worker: what finds its programs and devices, and nobody's keys.

A worker is told its settings by arguments. What it inherits it could print, dump with a crash, or hand to a loss
function of somebody's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from openclaw_rl.config.fields import mask_passwords
from openclaw_rl.config.sources import ENV_PREFIX
from openclaw_rl.redaction import is_secret_name


def worker_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Without settings of ours, names of secrets, and addresses with a password in them."""
    env = os.environ if env is None else env
    return {name: value for name, value in env.items() if not _is_private(name, value)}


def _is_private(name: str, value: str) -> bool:
    is_key = is_secret_name(name) or name.upper().endswith("KEY")
    return is_key or name.startswith(ENV_PREFIX) or mask_passwords(value) != value
