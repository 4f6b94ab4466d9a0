"""Counters and timings for Prometheus. Write-only: nothing in the system reads them, and no text gets in.

The loops that learn tell `judged`, `examined`, `judging_paused` and `credited` what they did, and know no more of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from openclaw_rl.types import ApiKey, EngineHealth

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The figures of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "openclaw_rl_requests", "HTTP requests answered.", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "openclaw_rl_request_seconds", "Time to the last byte.", ["route"], buckets=_SECONDS, registry=self.registry
        )
        self.turns = Counter(
            "openclaw_rl_turns", "Turns put on disk.", ["kind", "finish_reason"], registry=self.registry
        )
        self.prompt_tokens = Counter("openclaw_rl_prompt_tokens", "Tokens of prompts.", registry=self.registry)
        self.sampled_tokens = Counter("openclaw_rl_sampled_tokens", "Tokens sampled.", registry=self.registry)
        self.feedback = Counter("openclaw_rl_feedback", "Explicit feedback received.", registry=self.registry)
        self.open_sessions = Gauge("openclaw_rl_open_sessions", "Sessions that may go on.", registry=self.registry)
        self.engine_up = Gauge("openclaw_rl_engine_up", "1 while the engine answers.", registry=self.registry)
        self.engine_restarts = Gauge("openclaw_rl_engine_restarts", "Restarts of the engine.", registry=self.registry)
        self.member_up = Gauge(
            "openclaw_rl_engine_member_up",
            "1 while this engine of several answers.",
            ["engine"],
            registry=self.registry,
        )
        self.member_running = Gauge(
            "openclaw_rl_engine_member_running", "Requests that it computes.", ["engine"], registry=self.registry
        )
        self.member_restarts = Gauge(
            "openclaw_rl_engine_member_restarts", "Its restarts.", ["engine"], registry=self.registry
        )
        self.judgements = Counter("openclaw_rl_judgements", "Turns judged.", ["outcome"], registry=self.registry)
        self.canaries = Counter(
            "openclaw_rl_canaries", "What the judge made of known cases.", ["finding"], registry=self.registry
        )
        self.judge_paused = Gauge(
            "openclaw_rl_judge_paused",
            "1 while the judge is not believed and nothing judged.",
            registry=self.registry,
        )
        self.key_tokens = Counter(
            "openclaw_rl_key_tokens",
            "Tokens of prompts and answers, by the id of the key.",
            ["key"],
            registry=self.registry,
        )
        self.refused = Counter(
            "openclaw_rl_refused", "Requests refused by a limit.", ["limit", "key"], registry=self.registry
        )
        self.credits = Counter(
            "openclaw_rl_credits", "Judged turns by what became of them.", ["became"], registry=self.registry
        )

    def engines(self, health: Sequence[EngineHealth]) -> None:
        """How each of several engines is."""
        for one in health:
            self.member_up.labels(one.name).set(one.health == "answers")
            self.member_running.labels(one.name).set(one.num_running)
            self.member_restarts.labels(one.name).set(one.num_restarts)

    def limited(self, key: ApiKey, limit: str) -> None:
        self.refused.labels(limit, key.id).inc()

    def spent(self, key: ApiKey, num_tokens: int) -> None:
        self.key_tokens.labels(key.id).inc(num_tokens)

    def judged(self, outcome: str) -> None:
        self.judgements.labels(outcome).inc()

    def examined(self, finding: str) -> None:
        self.canaries.labels(finding).inc()

    def judging_paused(self, paused: bool) -> None:
        self.judge_paused.set(paused)

    def credited(self, became: str) -> None:
        """`became` is `sample`, or the reason why it did not."""
        self.credits.labels(became).inc()

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self.registry)
