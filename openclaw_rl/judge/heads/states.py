"""Reactions -> the hidden states of the base model at their ends, through the engine, behind everybody who waits."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from openclaw_rl.errors import EngineError, JudgeError
from openclaw_rl.judge.heads.examples import Said
from openclaw_rl.judge.heads.regression import Floats
from openclaw_rl.protocols import HiddenReader, Renderer
from openclaw_rl.types import HiddenRequest


def middle_layer(folder: Path) -> int:
    """Half of the blocks of a model: there it knows what is meant, and not yet which token comes next."""
    config = json.loads((folder / "config.json").read_bytes())
    return max(1, int(config.get("text_config", config)["num_hidden_layers"]) // 2)


class States:
    """What an engine holds of a text behind some blocks; of one longer than `max_tokens` it reads the end. It does not
    own the engine."""

    def __init__(
        self,
        engine: HiddenReader,
        renderer: Renderer,
        *,
        layer: int,
        max_tokens: int = 1024,
        timeout_s: float = 60.0,
    ) -> None:
        self.layer = layer
        self._max_tokens = max_tokens
        self._engine = engine
        self._renderer = renderer
        self._timeout_s = timeout_s

    async def read(self, reactions: Sequence[Said]) -> Floats:
        """[N, H]; JudgeError if the engine does not answer."""
        encode, most = self._renderer.encode, self._max_tokens
        sequences = await asyncio.to_thread(lambda: tuple(tuple(encode(one.prompt)[-most:]) for one in reactions))
        request = HiddenRequest(request_id=f"heads-{uuid.uuid4().hex}", sequences=sequences, layer=self.layer)
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._engine.hidden(request)
        except TimeoutError:
            raise JudgeError(f"the engine gave no hidden states within {self._timeout_s:g} s") from None
        except EngineError as error:
            raise JudgeError(f"the engine gave no hidden states: {error}") from error
        return np.array([one.values for one in found], dtype=np.float64)
