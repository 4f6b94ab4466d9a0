"""What learning does -> what people look at: the terminal, Prometheus, TensorBoard, W&B, OpenTelemetry, records.

Write-only. Nothing in the system reads it, waits for it or fails with it: without observers every batch, every step and
every version is the same. The credit loop, the train loop and the release tell an `Observers` what they did; each
observer gets it in a thread of its own. A new one is a file here with a subclass of `Observer`, its settings, and a
line in `registry.py`.
"""

from __future__ import annotations

from openclaw_rl.tracking.observers import Observer, Observers
from openclaw_rl.tracking.registry import check_tracking, make_observers

__all__ = ["Observer", "Observers", "check_tracking", "make_observers"]
