"""The whole engine on a GPU: mixed prompts and answers, adapters, forks, against a plain forward pass."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from openclaw_rl.engine.embedded.cuda.graph_runner import GraphRunner
from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.engine.embedded.loading import assemble, runner_for
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.model.adapter import AdapterWeights, LoraRows
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.model.network import Network
from openclaw_rl.types import Delta, GenerateRequest, Publication, Sampling, ScoreRequest
from tests.factories.weights import folder_ref
from tests.gpu.shapes import architecture, random_network

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CUDA = torch.device("cuda")
QWEN3 = architecture("qwen3")


def plain_logprobs(network: Network, ids: list[int], start: int, adapter: AdapterWeights | None) -> list[float]:
    size = len(ids) - 1

    def attend(layer: int, q_TND: torch.Tensor, k_TKD: torch.Tensor, v_TKD: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(0, 1)[None] for x in (q_TND, k_TKD, v_TKD))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out[0].transpose(0, 1).reshape(size, -1)

    lora = None if adapter is None else LoraRows([(slice(0, size), adapter)])
    with torch.inference_mode():
        hidden = network.hidden(torch.tensor(ids[:-1], device=CUDA), torch.arange(size, device=CUDA), attend, lora)
        logprobs = network.logits(hidden).log_softmax(-1)
    return [float(logprobs[i - 1, ids[i]]) for i in range(start, len(ids))]


async def answer(
    engine: EmbeddedEngine, prompt: list[int], version: str, **options: object
) -> tuple[list[int], list[float], str, int]:
    sampling = Sampling(**{"max_tokens": 24, "temperature": 1.0, "seed": 3, **options})  # type: ignore[arg-type]
    request = GenerateRequest(request_id="r", token_ids=prompt, sampling=sampling, version=version, cache_salt="ann")
    tokens, logprobs, last = list[int](), list[float](), list[Delta]()
    async for delta in engine.generate(request):
        tokens += delta.token_ids
        logprobs += delta.logprobs
        last = [delta]
    return tokens, logprobs, last[0].version, last[0].num_cached_tokens


async def test_the_engine_is_exact_in_float32(tmp_path: Path) -> None:
    network = random_network(QWEN3, device=CUDA, dtype=torch.float32)
    runner = runner_for(network, max_active=16)
    assert isinstance(runner, GraphRunner)
    options = EmbeddedOptions(prefill_chunk=64, kv_bytes=2**30, max_active=16, kv_after_update="exact")
    engine = assemble(runner, QWEN3, options, name="tiny", device=CUDA, dtype=torch.float32)
    adapters: dict[str, AdapterWeights | None] = {"v0": None}
    for number in (1, 2, 3):
        adapter = AdapterWeights.random(
            QWEN3, rank=4 * number, alpha=8.0, seed=number, b_std=0.05, device=CUDA, dtype=torch.float32
        )
        folder = tmp_path / f"v{number}"
        adapter.save(folder)
        await engine.publish(Publication(version=f"v{number}", weights=folder_ref(str(folder), folder_sha256(folder))))
        adapters[f"v{number}"] = adapter
    prompts = [[(7 * i + j) % (QWEN3.vocab_size - 1) for j in range(30 + 40 * i)] for i in range(12)]
    prompts += [[*prompts[5][:100], 3, 4], [*prompts[5], 9]]
    versions = [f"v{i % 4}" for i in range(len(prompts))]
    settings: list[dict[str, object]] = [{}, {"temperature": 0.0}, {"top_p": 0.8, "top_logprobs": 3}]
    answers = await asyncio.gather(
        *(
            answer(engine, prompt, version, **settings[i % 3])
            for i, (prompt, version) in enumerate(zip(prompts, versions, strict=True))
        )
    )
    for prompt, version, (tokens, logprobs, answered_by, _) in zip(prompts, versions, answers, strict=True):
        assert answered_by == version
        expected = plain_logprobs(network, [*prompt, *tokens], len(prompt), adapters[version])
        assert logprobs == pytest.approx(expected, abs=2e-3)
    again = await answer(engine, [*prompts[11], *answers[11][0], 5], versions[11])
    assert again[3] == len(prompts[11]) + 23
    ids = tuple(prompts[6])
    (scored,) = await engine.score(ScoreRequest(request_id="s", sequences=(ids,), starts=(5,), version="v2"))
    assert scored.logprobs == pytest.approx(plain_logprobs(network, list(ids), 5, adapters["v2"]), abs=2e-3)
    await engine.retire("v1")
    assert (await engine.state()).versions == ("v0", "v2", "v3")
    await engine.close()
