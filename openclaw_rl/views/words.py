"""Numbers as people read them."""

from __future__ import annotations


def size(num_bytes: float) -> str:
    """A number of bytes.

    >>> size(538_000_000)
    '538 MB'
    """
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
