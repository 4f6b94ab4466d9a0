"""Requests in ChatML, and what an engine made of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path

from tokenizers import Tokenizer

from openclaw_rl.engine.worker.wire import merge
from openclaw_rl.errors import EngineError
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.protocols import Engine
from openclaw_rl.types import BASE_VERSION, Delta, GenerateRequest, Json, Publication, Sampling
from tests.factories.weights import folder_ref


def chat(tokenizer: Tokenizer, text: str, *, answer: str = "") -> list[int]:
    """A prompt whose last user message is `text`, up to the beginning of the answer, or into it."""
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    ids: list[int] = tokenizer.encode(prompt, add_special_tokens=False).ids
    return ids + tokenizer.encode(answer, add_special_tokens=False).ids if answer else ids


def ask(
    token_ids: Iterable[int], request_id: str = "r", version: str | None = None, *, salt: str = "ann", **sampling: Json
) -> GenerateRequest:
    """A request with 100 tokens at most, unless `sampling` says otherwise."""
    return GenerateRequest(
        request_id=request_id,
        token_ids=list(token_ids),
        sampling=Sampling(**{"max_tokens": 100, **sampling}),
        version=version,
        cache_salt=salt,
    )


def saved(folder: Path, version: str, *, live: bool = True) -> Publication:
    """A version whose folder has bytes of its own, ready to be published."""
    path = folder / version
    path.mkdir(exist_ok=True)
    (path / "adapter_config.json").write_text("{}")
    (path / "adapter_model.safetensors").write_text(f"the weights of {version}")
    return Publication(version=version, weights=folder_ref(str(path), folder_sha256(path)), live=live)


BASE_AGAIN = Publication(version=BASE_VERSION)
"""Makes the base live again."""


async def all_deltas(engine: Engine, request: GenerateRequest) -> list[Delta]:
    async with aclosing(engine.generate(request)) as deltas:
        return [delta async for delta in deltas]


async def whole(engine: Engine, request: GenerateRequest) -> Delta:
    """The answer as one delta."""
    return merge(await all_deltas(engine, request))


async def until_error(engine: Engine, request: GenerateRequest) -> tuple[list[int], EngineError | None]:
    """The tokens that came, and the error that ended them if one did."""
    token_ids: list[int] = []
    try:
        async with aclosing(engine.generate(request)) as deltas:
            async for delta in deltas:
                token_ids += delta.token_ids
    except EngineError as error:
        return token_ids, error
    return token_ids, None
