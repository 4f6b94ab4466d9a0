"""A request and what the engine can do -> how many tokens it may sample, or a refusal.

Shared by all engines of ours, so that they refuse alike. Knows no HTTP beyond the status that a refusal maps to.
"""

from __future__ import annotations

from openclaw_rl.errors import EngineRefused
from openclaw_rl.types import EngineState, GenerateRequest


def admit(request: GenerateRequest, state: EngineState) -> tuple[str, int]:
    """The version that will answer and the number of tokens that fit; raises `EngineRefused`."""
    version = state.live_version if request.version is None else request.version
    if version not in state.versions:
        raise EngineRefused(
            f"version {version!r} is not loaded; loaded: {', '.join(state.versions)}",
            status=404,
            code="version_not_found",
        )
    num_prompt = len(request.token_ids)
    if num_prompt == 0:
        raise EngineRefused("the prompt is empty; send at least one token id", code="empty_prompt")
    room = state.context_window - num_prompt
    if room < 1:
        raise EngineRefused(
            f"the prompt has {num_prompt} tokens and the context window of {state.model} is {state.context_window}, "
            "of which the answer needs at least one; shorten the conversation",
            code="context_length_exceeded",
        )
    return version, min(request.sampling.max_tokens, room)
