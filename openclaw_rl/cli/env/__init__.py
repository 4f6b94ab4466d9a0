"""Agents at work on tasks: `openclaw-rl env …`."""
