"""Which browser this machine has."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")


def chromium_path() -> str | None:
    """The browser of this machine; OPENCLAW_RL_CHROMIUM names another one."""
    named = os.environ.get("OPENCLAW_RL_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)
