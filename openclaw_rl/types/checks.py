"""How a noun refuses to be born wrong."""

from __future__ import annotations


def require(condition: bool, message: str) -> None:
    """ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)
