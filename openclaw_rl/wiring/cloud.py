"""A service that serves and trains: looked at before anything starts, and what is used instead of what it cannot do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from openclaw_rl.cloud.bill import KINDS, Till
from openclaw_rl.cloud.desk import ServiceDesk
from openclaw_rl.cloud.service import Abilities, Used
from openclaw_rl.config import Config
from openclaw_rl.config.tree import CLOUDS
from openclaw_rl.errors import ConfigError

_log = logging.getLogger(__name__)

_WANTED = 8
"""Alternatives from which the gate estimates entropy."""
_TYPICAL_TOKENS = 1000
"""Of a turn of an agent, for the estimate at the start; a real step says what it cost."""


def desk_of(config: Config) -> ServiceDesk | None:
    """None where everything is computed here."""
    return ServiceDesk.of(config) if config.training.backend in CLOUDS else None


def show_bill(desk: ServiceDesk, registry: CollectorRegistry) -> None:
    """The bill so far among the figures of /metrics, read when somebody asks for them."""
    tokens = Gauge("openclaw_rl_service_tokens", "Tokens that a service computed.", ["kind"], registry=registry)
    usd = Gauge("openclaw_rl_service_usd", "What that cost, in US dollars.", ["when"], registry=registry)
    till = desk.till
    for kind in KINDS:
        tokens.labels(kind).set_function(partial(_tokens, till, kind))
    if desk.prices.are_known:
        usd.labels("today").set_function(lambda: till.bill().usd_today or 0.0)
        usd.labels("total").set_function(lambda: till.bill().usd_total or 0.0)


def _tokens(till: Till, kind: str) -> float:
    return float(getattr(till.bill().total, kind))


async def look_at_service(config: Config, *, learn: bool, say: Callable[[str], None]) -> None:
    """`ConfigError` in one sentence for what cannot be; otherwise says what the service is used for, and how."""
    if (desk := desk_of(config)) is None:
        return
    desk.require_consent()
    abilities, away = await asyncio.to_thread(desk.survey)
    if away:
        _tell(say, f"{away}. What it could do when it was last seen is believed; requests wait for it.")
    if learn and not abilities.prompt_logprobs:
        raise ConfigError(
            f"{desk.access.place} gives no log-probs of given tokens, so that no version could be proved: serve "
            "without learning (`openclaw-rl serve`), or use another server"
        )
    if learn and not abilities.alternatives:
        raise ConfigError(
            f"{desk.access.place} says no likely tokens beside those it draws, so that the gate could not see how sure "
            "a version is: serve without learning (`openclaw-rl serve`), or use another service"
        )
    for line in (*_instead(config, abilities), *_money(config, desk)) if learn else ():
        _tell(say, line)


def _tell(say: Callable[[str], None], line: str) -> None:
    _log.info("%s", line)
    say(line)


def _instead(config: Config, abilities: Abilities) -> Iterator[str]:
    training = config.training
    if training.opd_weight and not (abilities.likely_tokens and abilities.wide_targets):
        lacks = "targets of several tokens at a place" if abilities.likely_tokens else "likeliest tokens of prompts"
        yield (
            f"The service gives no {lacks}: hints are distilled token by token (training.distillation=token) instead "
            f"of by {training.distillation}, and the shortest hint teaches."
        )
    elif not abilities.chosen_tokens and training.distillation in ("topk", "reverse_kl"):
        yield (
            "The service gives no log-probs of chosen tokens of prompts: distillation moves the teacher's likely "
            f"tokens (training.subset_mode=teacher) instead of {training.subset_mode}."
        )
    if not abilities.policy_loss and training.binary_weight:
        yield "The service has no clipped policy loss: scores are trained by a loss of ours, in two passes."
    if abilities.alternatives < _WANTED:
        yield (
            f"The service says {abilities.alternatives} likely tokens of each that it draws: the gate estimates "
            f"entropy from those instead of {_WANTED}."
        )
    if not abilities.scaled_logprobs:
        yield (
            "The service says log-probs at temperature 1 whatever it sampled at: importance weights cannot correct "
            "for the temperature."
        )


def _money(config: Config, desk: ServiceDesk) -> Iterator[str]:
    training = config.training
    tokens, epochs = training.batch_size * _TYPICAL_TOKENS, training.num_epochs
    used = Used(prefill=tokens * (epochs + 2), train=tokens * epochs)
    cost = desk.prices.cost(used)
    what = (
        f"A step of {training.batch_size} turns of {_TYPICAL_TOKENS} tokens reads {used.prefill:,} tokens and trains "
        f"on {used.train:,}"
    )
    if cost is None:
        yield f"{what}; what that costs is not known: set training.cloud.price_prefill, price_sample and price_train."
        return
    budget = training.cloud.daily_budget
    limit = f"; training stops at ${budget:.2f} a day" if budget else "; no training.cloud.daily_budget is set"
    spent = desk.till.bill()
    yield f"{what}: about ${cost:.4f}{limit}. So far ${spent.usd_total or 0:.2f}, today ${spent.usd_today or 0:.2f}."
