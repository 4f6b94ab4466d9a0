"""The memory that is free and the settings -> how much of a step is computed at once, and what of it is kept.

What is set is done. The rest follows from the free memory (memory.py), and from what did not fit although it should
have: then activations are computed again, and after that parts become smaller. Knows no samples and no weights.
"""

from __future__ import annotations

import logging

import torch

from openclaw_rl.model.architecture import Architecture
from openclaw_rl.train.head.rows import extra_bytes
from openclaw_rl.train.passes import memory
from openclaw_rl.train.passes.activations import Kept
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.step import OutOfMemory, PassRoom

_log = logging.getLogger(__name__)

UNPLANNED_TOKENS = 4096
"""Of a part, where nobody asked what a token takes."""
READ_TOKENS = 4
"""Times as many tokens as in a part that learns are read at once where nothing does: they leave nothing behind."""


class Rooms:
    """Of one model on one device, for as long as it is trained."""

    def __init__(
        self,
        arch: Architecture | None,
        *,
        device: torch.device,
        dtype: torch.dtype,
        shrink: int,
        is_fused: bool = False,
        can_recompute: bool = True,
        num_sharing: int = 1,
    ) -> None:
        """Without `arch` nobody knows what a token takes. `shrink` divides all parts; `num_sharing` processes have the
        device's memory together."""
        self._num_sharing = num_sharing
        self._arch = arch
        self._is_fused = is_fused
        self._can_recompute = can_recompute
        self._device = device
        self._dtype = dtype
        self._shrink = shrink
        self._max_tokens: int | None = None
        self._is_tight = False

    def room(self, num_tokens: int, *, settings: TrainSettings, num_learning: int) -> PassRoom:
        """For a step of so many tokens."""
        ways = self._ways(settings)
        if self._arch is None:
            kept, fits = ways[0], UNPLANNED_TOKENS
        else:
            plan = memory.plan(
                self._arch,
                self._dtype,
                self._device,
                num_tokens,
                ways=ways,
                reserved=self._reserved(self._arch, settings, num_learning),
                learns_all=not settings.use_lora,
                is_fused=self._is_fused,
                num_sharing=self._num_sharing,
            )
            kept, fits = plan.kept, plan.max_tokens
        most = min(settings.micro_batch_tokens or fits, self._max_tokens or fits)
        most = max(1, most // self._shrink)
        return PassRoom(max_tokens=most, max_read_tokens=READ_TOKENS * most, kept=kept)

    def shrink(self, shortage: OutOfMemory, settings: TrainSettings) -> bool:
        """After this did not fit; False where there is nothing smaller."""
        room = shortage.room
        if settings.use_gradient_checkpointing is None and room.kept.keep != "nothing" and self._can_recompute:
            self._is_tight = True
            _log.warning("out of memory: activations are computed again from now on")
            return True
        now = min(room.max_tokens, shortage.total)
        if now <= shortage.largest:
            return False
        self._max_tokens = max(shortage.largest, now // 2) * self._shrink
        _log.warning("out of memory: smaller parts from now on", extra={"max_tokens": self._max_tokens})
        return True

    def _ways(self, settings: TrainSettings) -> tuple[Kept, ...]:
        """What may be kept, the fastest first."""
        may_offload = settings.offload_activations and self._device.type == "cuda"
        recompute = settings.use_gradient_checkpointing
        if recompute is None and not self._is_tight:
            return memory.WITH_HOST if may_offload else memory.ON_DEVICE
        return (Kept(keep="all" if recompute is False else "nothing", offload=may_offload),)

    def _reserved(self, arch: Architecture, settings: TrainSettings, num_learning: int) -> int:
        """Of all memory, for what is no token's: what learns, and the logits that are there at once."""
        learning = memory.fixed_bytes(num_learning, self._dtype, learns_all=not settings.use_lora)
        return learning + extra_bytes(self._device.type, arch.vocab_size)
