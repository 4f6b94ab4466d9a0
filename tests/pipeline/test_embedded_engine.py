"""The embedded engine as a process, from the supervisor down to the weights, on a tiny model."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

from openclaw_rl.backoff import Backoff
from openclaw_rl.engine.worker.hosts import EMBEDDED
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.engine.worker.wire import merge
from openclaw_rl.errors import EngineRefused, EngineUnavailable
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.architecture import Architecture
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.protocols import Engine
from openclaw_rl.types import BASE_VERSION, Delta, GenerateRequest, Publication, Sampling, ScoreRequest
from tests.factories.weights import folder_ref
from tests.tiny import CONTEXT_WINDOW, build_tiny_model

PROMPTS = [[1, 300, 20, 30, 40], [1, 7], list(range(3, 90)), [500, 8, 8]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


@asynccontextmanager
async def embedded(folder: Path, socket: Path, **options: Any) -> AsyncIterator[Supervisor]:
    options = {"device": "cpu", "threads": 1, "prefill_chunk": 32, **options}
    module = [sys.executable, "-m", "openclaw_rl.engine.embedded"]
    command = [*module, "--socket", str(socket), "--model", str(folder), "--options", json.dumps(options)]
    supervisor = Supervisor.of_worker(
        command, socket, capabilities=EMBEDDED, wait_s=60.0, backoff=Backoff(first_s=0.01, longest_s=30.0)
    )
    async with asyncio.TaskGroup() as loops:
        loops.create_task(supervisor.run())
        try:
            yield supervisor
        finally:
            await supervisor.stop()


def ask(prompt: Sequence[int], name: str = "r", **sampling: Any) -> GenerateRequest:
    return GenerateRequest(
        request_id=name, token_ids=prompt, sampling=Sampling(**{"max_tokens": 20, "seed": 3, **sampling})
    )


async def whole(engine: Engine, request: GenerateRequest) -> Delta:
    async with aclosing(engine.generate(request)) as deltas:
        return merge([delta async for delta in deltas])


async def test_the_worker_answers_as_the_model_would(folder: Path, tmp_path: Path) -> None:
    oracle: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    async with embedded(folder, tmp_path / "e.sock") as supervisor:
        engine = supervisor.engine
        state = await engine.state()
        assert (state.context_window, state.dtype, state.device) == (CONTEXT_WINDOW, "float32", "cpu")
        for prompt in PROMPTS:
            answer = await whole(engine, ask(prompt, temperature=0.0, top_logprobs=1))
            ids = torch.tensor([[*prompt, *answer.token_ids]])
            with torch.no_grad():
                rows = torch.log_softmax(oracle(ids).logits[0, len(prompt) - 1 : -1], dim=-1)
            assert list(answer.token_ids) == rows.argmax(dim=-1).tolist()
            assert answer.logprobs == pytest.approx(rows.max(dim=-1).values.tolist(), abs=1e-4)
            assert answer.version == BASE_VERSION
        await _answers_do_not_depend_on_company(engine)
        await _a_reader_that_leaves_is_forgotten(engine)
        await _the_window_is_the_limit(engine)


async def _answers_do_not_depend_on_company(engine: Engine) -> None:
    requests = [ask(prompt, f"r{number}", temperature=1.0) for number, prompt in enumerate(PROMPTS * 3)]
    alone = [await whole(engine, request) for request in requests]
    together = await asyncio.gather(*(whole(engine, request) for request in requests))
    for one, other in zip(alone, together, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)  # a batch sums in another order
    assert len({answer.token_ids for answer in alone}) == len(PROMPTS)


async def _a_reader_that_leaves_is_forgotten(engine: Engine) -> None:
    for number in range(10):  # more than are active at once: each must have freed its place
        async with aclosing(engine.generate(ask(PROMPTS[0], f"gone{number}", max_tokens=250))) as deltas:
            await anext(deltas)
    assert (await whole(engine, ask(PROMPTS[1]))).finish_reason == "length"


async def _the_window_is_the_limit(engine: Engine) -> None:
    almost = list(range(CONTEXT_WINDOW - 3))
    answer = await whole(engine, ask(almost))
    assert (len(answer.token_ids), answer.finish_reason) == (3, "length")
    with pytest.raises(EngineRefused) as refusal:
        await whole(engine, ask([1] * CONTEXT_WINDOW))
    assert refusal.value.code == "context_length_exceeded"
    with pytest.raises(EngineRefused, match="vocabulary"):
        await whole(engine, ask([100_000]))


async def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    async with embedded(tmp_path / "nowhere", tmp_path / "e.sock") as supervisor:
        while supervisor.last_error is None:
            with pytest.raises(EngineUnavailable):
                await supervisor.wait_ready(0.1)
        assert "config.json" in supervisor.last_error


async def test_what_was_published_survives_the_death_of_the_worker(folder: Path, tmp_path: Path) -> None:
    arch = Architecture.from_config(json.loads((folder / "config.json").read_text()))
    assert arch is not None
    for number in (1, 2):
        AdapterWeights.random(
            arch, rank=4, alpha=8.0, seed=number, b_std=0.3, device=torch.device("cpu"), dtype=torch.float32
        ).save(tmp_path / f"v{number}")
    async with embedded(folder, tmp_path / "e.sock") as supervisor:
        engine = supervisor.engine
        for number in (1, 2):
            path = tmp_path / f"v{number}"
            await engine.publish(Publication(version=f"v{number}", weights=folder_ref(str(path), folder_sha256(path))))
        first = tmp_path / "v1"
        await engine.publish(Publication(version="v1", weights=folder_ref(str(first), folder_sha256(first))))
        before = [await whole(engine, replace(ask(PROMPTS[2]), version=v)) for v in (None, "v0", "v2")]
        scores = await engine.score(ScoreRequest(request_id="s", sequences=(tuple(PROMPTS[2]),), starts=(5,)))
        assert len({answer.token_ids for answer in before}) == 3
        alive = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
        (worker,) = [one for one in alive if str(tmp_path / "e.sock") in one.cmdline()]
        worker.kill()
        while supervisor.num_restarts == 0:  # noqa: ASYNC110 - its death is noticed by somebody else
            await asyncio.sleep(0.01)
        assert (await engine.state()).live_version == "v1"
        after = [await whole(engine, replace(ask(PROMPTS[2]), version=v)) for v in (None, "v0", "v2")]
        assert [(a.version, a.token_ids) for a in after] == [(b.version, b.token_ids) for b in before]
        assert [answer.version for answer in after] == ["v1", "v0", "v2"]
        again = await engine.score(ScoreRequest(request_id="s", sequences=(tuple(PROMPTS[2]),), starts=(5,)))
        assert again[0].logprobs == pytest.approx(scores[0].logprobs, abs=1e-5)
