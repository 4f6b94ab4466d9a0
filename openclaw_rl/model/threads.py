"""Small products on a CPU, by one thread: waking a second one takes longer than they do.

A product of eight rows with an adapter takes 12 µs; with two threads, of which one sleeps between two products, 130.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes with one thread in here. Costs a microsecond."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
