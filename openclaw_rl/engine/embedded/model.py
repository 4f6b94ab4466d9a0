"""A Hugging Face folder -> forward passes: a prompt becomes tokens, one call of `advance` after the other.

Loads through transformers and without pickle or foreign code; on a CPU in float32 the weights stay a mapping of the
safetensors file (RSS grows by the pages that are touched, and other processes share them). A batch of one with a cache
of its own for each answer: correct and simple. Knows no HTTP and no other request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from openclaw_rl.engine.embedded.dtype_probe import why_not_bfloat16
from openclaw_rl.engine.embedded.sampling import Sampler
from openclaw_rl.errors import ConfigError, EngineRefused, ModelError
from openclaw_rl.types import BASE_VERSION, Delta, EngineState, GenerateRequest, Json

_log = logging.getLogger(__name__)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """`auto` is CUDA where there is one, bfloat16 there and float32 on a CPU.

    A prompt is read `prefill_chunk` tokens at a time: other answers advance, and a cancellation is seen, in between
    (0.6 s for 192 tokens of the 135M model on one busy core).
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int | None = None
    context_window: int | None = None
    max_active: int = 8
    prefill_chunk: int = 192

    @classmethod
    def from_json(cls, raw: Json) -> EmbeddedOptions:
        """Options as the command line carries them."""
        known = [field.name for field in fields(cls)]
        if not isinstance(raw, dict) or not set(raw) <= set(known):
            raise ConfigError(f"the embedded engine's options are {', '.join(known)}; got {raw!r}")
        return cls(**raw)


class Generation:
    """One answer in the making: what was read, what was sampled, and the cache of both."""

    def __init__(
        self, request: GenerateRequest, version: str, max_tokens: int, sampler: Sampler, cache: DynamicCache
    ) -> None:
        self.token_ids = list(request.token_ids)
        self.num_read = 0
        self.num_left = max_tokens
        self.stop_token_ids = frozenset(request.stop_token_ids)
        self.version = version
        self.sampler = sampler
        self.cache = cache


class Model:
    """The loaded weights. Not thread-safe: one thread calls `advance`."""

    def __init__(self, path: Path, options: EmbeddedOptions) -> None:
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self._device = torch.device(_choose_device(options.device))
        dtype = choose_dtype(options.dtype, self._device.type)
        self._model, window = _load(path, dtype, self._device)
        window = window if options.context_window is None else min(window, options.context_window)
        self._vocab_size = self._model.get_input_embeddings().num_embeddings
        self._prefill_chunk = options.prefill_chunk
        self.state = EngineState(
            model=path.name,
            versions=(BASE_VERSION,),
            live_version=BASE_VERSION,
            context_window=window,
            device=str(self._device),
            dtype=str(dtype).removeprefix("torch."),
        )

    def begin(self, request: GenerateRequest, version: str, max_tokens: int) -> Generation:
        """Prepares an answer of at most `max_tokens`; `EngineRefused` if an id is outside the vocabulary."""
        for token in (max(request.token_ids), *request.sampling.logit_bias):
            if not 0 <= token < self._vocab_size:
                raise EngineRefused(f"token id {token} is outside the vocabulary of {self._vocab_size}")
        sampler = Sampler(request.sampling, request.token_ids, self._vocab_size, self._device)
        return Generation(request, version, max_tokens, sampler, DynamicCache(config=self._model.config))

    @torch.inference_mode()
    def advance(self, generation: Generation) -> Delta | None:
        """One forward pass: the next piece of the prompt (None), or the next token."""
        start = generation.num_read
        piece = generation.token_ids[start : start + self._prefill_chunk]
        output = self._model(
            input_ids=torch.tensor([piece], device=self._device),
            past_key_values=generation.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        generation.num_read += len(piece)
        if generation.num_read < len(generation.token_ids):
            return None
        draw = generation.sampler.draw(output.logits[0, -1], len(generation.token_ids))
        generation.token_ids.append(draw.token_id)
        generation.num_left -= 1
        return Delta(
            token_ids=(draw.token_id,),
            logprobs=(draw.logprob,),
            version=generation.version,
            top_logprobs=None if draw.top_logprobs is None else (draw.top_logprobs,),
            finish_reason=_finish_reason(generation, draw.token_id),
        )


def choose_dtype(wanted: str, device: str, probe: Callable[[], str | None] = why_not_bfloat16) -> torch.dtype:
    """The precision to load in; bfloat16 on a CPU only if the probe survived it."""
    if device != "cpu":
        return _DTYPES["bfloat16" if wanted == "auto" else wanted]
    if wanted == "bfloat16":
        reason = probe()
        if reason is None:
            return torch.bfloat16
        _log.warning("bfloat16 does not work on this CPU, so the model runs in float32: %s", reason)
    return torch.float32


def _choose_device(wanted: str) -> str:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device is cuda, but torch sees no CUDA device; use engine.device=auto or cpu")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def _load(path: Path, dtype: torch.dtype, device: torch.device) -> tuple[Any, int]:
    """The model, ready to run, and its context window."""
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} is no model folder: it has no config.json; check model.name")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        # What transformers raises for an unknown architecture, a missing or broken file, or a missing package.
        raise ModelError(f"transformers cannot load {path}: {error}") from error
    model, report = loaded
    if report["missing_keys"]:
        # transformers would fill them with random numbers and only warn.
        raise ModelError(f"{path} lacks weights of its architecture, such as {min(report['missing_keys'])}")
    window = getattr(config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(window, int):
        raise ModelError(f"{path}/config.json does not say max_position_embeddings, the context window")
    return model.to(device).eval(), window


def _finish_reason(generation: Generation, token: int) -> Literal["stop", "length"] | None:
    if token in generation.stop_token_ids:
        return "stop"
    return "length" if generation.num_left == 0 else None
