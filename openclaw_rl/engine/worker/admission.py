"""What is asked and what the engine has -> what will be done, or a refusal.

Shared by all engines of ours, so that they refuse alike. Knows no HTTP beyond the status that a refusal maps to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from openclaw_rl.errors import CONTEXT_LENGTH_EXCEEDED, EngineRefused, ModelError
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.types import (
    BASE_VERSION,
    EngineState,
    GenerateRequest,
    HiddenRequest,
    Publication,
    Sampling,
    ScoreRequest,
)

COLDEST = 1e-20
LARGEST_BIAS = 1e10
LARGEST_PENALTY = 1e6
"""Far beyond any use. Within them, and with any logits below 1e5, no sum or quotient of sampling leaves float32."""

_LABEL = re.compile(r"v[0-9A-Za-z._-]{1,63}")
"""Labels travel in model names (`NAME@v3`, also written `NAME@3`), headers and metrics."""


def admit(request: GenerateRequest, state: EngineState) -> tuple[str, int]:
    """The version that will answer and the number of tokens that fit; raises `EngineRefused`."""
    version = _version(request.version, state)
    num_prompt = len(request.token_ids)
    if num_prompt == 0:
        raise EngineRefused("the prompt is empty; send at least one token id", code="empty_prompt")
    room = state.context_window - num_prompt
    if room < 1:
        raise EngineRefused(
            f"the prompt has {num_prompt} tokens and the context window of {state.model} is {state.context_window}, "
            "of which the answer needs at least one; shorten the conversation",
            code=CONTEXT_LENGTH_EXCEEDED,
        )
    _check_ids("token_ids", request.token_ids, state)
    _check_ids("logit_bias", request.sampling.logit_bias, state)
    _check_temperature(request.sampling.temperature)
    _check_sizes(request.sampling)
    return version, min(request.sampling.max_tokens, room)


def admit_score(request: ScoreRequest, state: EngineState) -> str:
    """The version that will score; raises `EngineRefused`."""
    version = _version(request.version, state)
    _check_temperature(request.temperature)
    _check_sequences(request.sequences, state)
    return version


def _check_sequences(sequences: Sequence[Sequence[int]], state: EngineState) -> None:
    for number, token_ids in enumerate(sequences):
        if len(token_ids) > state.context_window:
            raise EngineRefused(
                f"sequence {number} has {len(token_ids)} tokens and the context window of {state.model} is "
                f"{state.context_window}; shorten it",
                code=CONTEXT_LENGTH_EXCEEDED,
            )
        _check_ids(f"sequence {number}", token_ids, state)


def admit_hidden(request: HiddenRequest, state: EngineState, *, num_layers: int) -> None:
    """Raises `EngineRefused` for a layer or tokens that the model does not have."""
    if request.layer > num_layers:
        raise EngineRefused(f"layer must lie in [1, {num_layers}] for {state.model}, got {request.layer}")
    _check_sequences(request.sequences, state)


def admit_publication(publication: Publication, loaded: Mapping[str, str]) -> bool:
    """Whether the version is still to be loaded; False means that it only has to be made live, if that is wished.

    `loaded` has the checksum of each version that is there, and "" for the base, whose bytes are those that the engine
    was started with: publishing it with an empty checksum makes it live again. Raises `EngineRefused`.
    """
    version = publication.version
    if not _LABEL.fullmatch(version):
        raise EngineRefused(
            f"{version[:80]!r} is no version label; labels are a v and up to 63 letters, digits, dots, dashes or "
            "underscores, such as v3",
            code="invalid_version",
        )
    if version not in loaded:
        return True
    if (known := loaded[version]) != publication.sha256:
        raise EngineRefused(
            f"version {version} is loaded with the checksum {known or '(none: it is the base)'} and cannot become "
            f"{publication.sha256 or '(none)'}: a label names the same bytes for ever; publish under a new one",
            status=409,
            code="version_conflict",
        )
    return False


def verify(publication: Publication) -> Path:
    """The folder with the weights. Reads it (blocking) and compares its checksum; raises `EngineRefused`."""
    weights = publication.weights
    if weights is None or (folder := weights.folder) is None:
        raise EngineRefused(
            f"version {publication.version} is at {weights.uri if weights else 'no place'}: this engine loads folders "
            "of its own machine. Train with training.backend=local, or serve with an engine that can fetch it",
            code="version_unreadable",
        )
    try:
        got = folder_sha256(folder)
    except ModelError as error:
        raise EngineRefused(f"version {publication.version}: {error}", code="version_unreadable") from error
    if got != weights.sha256:
        raise EngineRefused(
            f"version {publication.version}: {folder} has the checksum {got}, expected "
            f"{weights.sha256 or '(none)'}; nothing was loaded. Write the folder whole before it is published, and "
            "never change it afterwards",
            code="checksum_mismatch",
        )
    return folder


def admit_retirement(version: str, state: EngineState) -> None:
    """Returns if the version may go; raises `EngineRefused`."""
    version = _version(version, state)
    if version == BASE_VERSION:
        raise EngineRefused(
            f"version {version} is the base that every adapter stands on; it stays", status=409, code="version_is_base"
        )
    if version == state.live_version:
        raise EngineRefused(f"version {version} is live; publish another one first", status=409, code="version_is_live")


def _version(wanted: str | None, state: EngineState) -> str:
    version = state.live_version if wanted is None else wanted
    if version not in state.versions:
        raise EngineRefused(
            f"version {version[:80]!r} is not loaded; loaded: {', '.join(state.versions)}",
            status=404,
            code="version_not_found",
        )
    return version


def _check_temperature(temperature: float) -> None:
    if 0.0 < temperature < COLDEST:
        raise EngineRefused(
            f"temperature {temperature:g} is too small to divide by; send 0 for greedy answers, or at least {COLDEST}",
            code="sampling_out_of_range",
        )


def _check_sizes(sampling: Sampling) -> None:
    bias = max(map(abs, sampling.logit_bias.values()), default=0.0)
    if bias > LARGEST_BIAS:
        raise EngineRefused(
            f"logit_bias has {bias:g}, more than {LARGEST_BIAS:g} on either side of 0; 100 decides any token",
            code="sampling_out_of_range",
        )
    penalty = sampling.repetition_penalty
    if not 1 / LARGEST_PENALTY <= penalty <= LARGEST_PENALTY:
        raise EngineRefused(
            f"repetition_penalty {penalty:g} is not within {1 / LARGEST_PENALTY:g} and {LARGEST_PENALTY:g}; 1 is none",
            code="sampling_out_of_range",
        )


def _check_ids(name: str, token_ids: Iterable[int], state: EngineState) -> None:
    # min and max run in C: 2 to 3 ms for 76,000 ids.
    for extreme in (min, max):
        token = extreme(token_ids, default=0)
        if not 0 <= token < state.vocab_size:
            raise EngineRefused(
                f"{name}: token id {token} is outside the vocabulary of {state.model}, which has {state.vocab_size}",
                code="token_out_of_vocabulary",
            )
