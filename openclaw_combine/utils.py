"""`from openclaw_combine.utils import inspect_sessions`."""

from openclaw_rl import inspect_sessions

__all__ = ["inspect_sessions"]
