"""One thread: these tests share the machine, and OpenMP threads that wait for a busy core are slower than none."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
