"""A tiny network with random weights, a scheduler over it, and the same computed plainly to compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from openclaw_rl.engine.embedded.cache import Strands, reuse_rule
from openclaw_rl.engine.embedded.runner import NetworkRunner
from openclaw_rl.engine.embedded.scheduler import AnswerJob, EngineWeights, Job, ReadingJob, Result, Scheduler
from openclaw_rl.model.adapter import AdapterWeights, LoraRows
from openclaw_rl.model.architecture import MODULES, Architecture, Rope
from openclaw_rl.model.network import DenseLinear, LayerWeights, Network
from openclaw_rl.model.network import Weights as NetworkWeights
from openclaw_rl.types import Delta, GenerateRequest, Sampling

VOCAB = 61
STOP = 60

ARCHITECTURE = Architecture(
    family="qwen3",
    num_layers=2,
    hidden_size=24,
    mlp_size=40,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=VOCAB,
    rms_eps=1e-6,
    rope=Rope(theta=10_000.0),
    qk_norm=True,
    tied_head=True,
    context_window=512,
)


@lru_cache
def network(seed: int = 0, arch: Architecture = ARCHITECTURE) -> Network:
    """Weights large enough that answers differ from prompt to prompt."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * 0.4

    def projection(module: str) -> DenseLinear:
        parts = arch.projections(module)  # type: ignore[arg-type]
        return DenseLinear(random(sum(part.out_features for part in parts), parts[0].in_features))

    layers = tuple(
        LayerWeights(
            input_norm=1 + random(arch.hidden_size) / 4,
            q_norm=1 + random(arch.head_dim) / 4,
            k_norm=1 + random(arch.head_dim) / 4,
            post_norm=1 + random(arch.hidden_size) / 4,
            **{module: projection(module) for module in MODULES},
        )
        for _ in range(arch.num_layers)
    )
    embedding = random(VOCAB, arch.hidden_size)
    return Network(
        arch,
        NetworkWeights(
            embedding=embedding, layers=layers, final_norm=torch.ones(arch.hidden_size), head=DenseLinear(embedding)
        ),
    )


@lru_cache
def runner(seed: int) -> NetworkRunner:
    return NetworkRunner(network(seed))


@lru_cache
def adapter(seed: int, rank: int = 3) -> AdapterWeights:
    """An adapter that moves the logits visibly."""
    generator = torch.Generator().manual_seed(1000 + seed)
    made = AdapterWeights.random(
        ARCHITECTURE, rank=rank, alpha=2.0 * rank, device=torch.device("cpu"), dtype=torch.float32, seed=seed
    )
    for parameter in made.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return made


def weights(label: str = "v0", rule: str = "exact", *, seed: int = 0) -> EngineWeights:
    """Version n > 0 of the line `v` is adapter n on the network `seed`."""
    number = int(label[1:])
    return EngineWeights(label, runner(seed), adapter(number) if number else None, reuse_rule(rule)(label))


def plain_logits(token_ids: Sequence[int], given: EngineWeights) -> Tensor:
    """[T, V]: one forward pass over the whole sequence, without cache, chunks or company."""
    runs = given.runner
    assert isinstance(runs, NetworkRunner)
    net = runs._network
    size = len(token_ids)

    def attend(layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        group = q_TND.shape[1] // k_TKD.shape[1]
        k, v = k_TKD.repeat_interleave(group, 1), v_TKD.repeat_interleave(group, 1)
        scores = torch.einsum("tnd,snd->nts", q_TND, k) / math.sqrt(q_TND.shape[-1])
        seen = torch.full((size, size), -math.inf).triu(1)
        return torch.einsum("nts,snd->tnd", (scores + seen).softmax(-1), v).reshape(size, -1)

    lora = None if given.adapter is None else LoraRows([(slice(0, size), given.adapter)])
    with torch.inference_mode():
        return net.logits(net.hidden(torch.tensor(token_ids), torch.arange(size), attend, lora))


def plain_logprobs(token_ids: Sequence[int], start: int, given: EngineWeights, temperature: float = 1.0) -> list[float]:
    """Of the tokens from `start` on."""
    logprobs = (plain_logits(token_ids[:-1], given) / temperature).log_softmax(-1)
    return [float(logprobs[i - 1, token_ids[i]]) for i in range(start, len(token_ids))]


def scheduler(*, max_tokens: int = 100_000, max_active: int = 8, prefill_chunk: int = 16) -> Scheduler:
    return Scheduler(
        Strands(runner(0).new_storage, max_tokens=max_tokens), max_active=max_active, prefill_chunk=prefill_chunk
    )


def answer(
    token_ids: Sequence[int],
    given: EngineWeights | None = None,
    *,
    max_tokens: int = 8,
    name: str = "r",
    priority: int = 0,
    stop: tuple[int, ...] = (),
    exact: bool = False,
    salt: str = "ann",
    num_shareable: int = 0,
    party: str = "",
    weight: float = 1.0,
    **options: object,
) -> AnswerJob:
    sampling = Sampling(max_tokens=max_tokens, **{"temperature": 0.0, **options})  # type: ignore[arg-type]
    request = GenerateRequest(
        request_id=name,
        token_ids=list(token_ids),
        sampling=sampling,
        stop_token_ids=stop,
        priority=priority,
        exact=exact,
        cache_salt=salt,
        num_shareable=num_shareable,
        party=party,
        weight=weight,
    )
    return AnswerJob(request, given or weights(), max_tokens)


def reading(token_ids: Sequence[int], start: int, given: EngineWeights | None = None, **options: object) -> ReadingJob:
    settings = {"temperature": 1.0, "top": 0, "priority": 1, "salt": "ann", **options}
    return ReadingJob(list(token_ids), start, given or weights(), **settings)  # type: ignore[arg-type]


def run(scheduled: Scheduler, *jobs: Job, max_steps: int = 500) -> dict[Job, list[Result]]:
    """Submits the jobs and steps until nothing is left; the results of each."""
    for job in jobs:
        scheduled.submit(job)
    found: dict[Job, list[Result]] = {job: [] for job in jobs}
    for _ in range(max_steps):
        if not scheduled.has_work:
            return found
        for job, result in scheduled.step():
            found.setdefault(job, []).append((job, result))
    raise AssertionError("the jobs did not end")


def sampled(results: Sequence[Result]) -> tuple[list[int], list[float]]:
    """The tokens and log-probs of an answer's deltas."""
    tokens, logprobs = list[int](), list[float]()
    for _, delta in results:
        assert isinstance(delta, Delta), delta
        tokens += delta.token_ids
        logprobs += delta.logprobs
    return tokens, logprobs
