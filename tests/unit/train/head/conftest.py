"""How these tests draw their examples: the same ones every time, and however busy the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
