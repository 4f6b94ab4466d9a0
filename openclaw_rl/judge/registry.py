"""`evaluation.judge` -> the judge. A new judge is one file and one line in JUDGES."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.config import Config, EvaluationConfig
from openclaw_rl.config.learning import JudgeName
from openclaw_rl.errors import ConfigError, JudgeError
from openclaw_rl.judge.chain import Chain
from openclaw_rl.judge.claims import ClaimsMarked
from openclaw_rl.judge.endpoint import EndpointAsker
from openclaw_rl.judge.explicit import ExplicitFirst
from openclaw_rl.judge.function import FunctionJudge
from openclaw_rl.judge.panel import Asker, PanelJudge
from openclaw_rl.judge.rules import RulesJudge
from openclaw_rl.judge.sampled import EngineAsker
from openclaw_rl.protocols import Engine, Judge, Renderer
from openclaw_rl.redaction import redact
from openclaw_rl.types import BASE_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What judges are made of."""

    config: Config
    engine: Engine | None
    renderer: Renderer | None
    judge_engine: Engine | None
    judge_renderer: Renderer | None


def make_judge(
    config: Config,
    *,
    engine: Engine | None = None,
    renderer: Renderer | None = None,
    judge_engine: Engine | None = None,
    judge_renderer: Renderer | None = None,
) -> Judge:
    """The configured judges as one."""
    return join(
        make_judges(config, engine=engine, renderer=renderer, judge_engine=judge_engine, judge_renderer=judge_renderer)
    )


def join(judges: Sequence[Judge]) -> Judge:
    """What a person said outright comes first; of several judges, the next is asked when one cannot say.

    Claims are marked, unless one is a function of somebody's own: that may know what is so.
    """
    first = ExplicitFirst(judges[0] if len(judges) == 1 else Chain(judges))
    return first if any(judge.name == FunctionJudge.name for judge in judges) else ClaimsMarked(first)


def make_judges(
    config: Config,
    *,
    engine: Engine | None = None,
    renderer: Renderer | None = None,
    judge_engine: Engine | None = None,
    judge_renderer: Renderer | None = None,
) -> list[Judge]:
    """The configured judges, in the order in which they are asked.

    `engine` is the served one, for `self`; `judge_engine` runs on `evaluation.judge_path`, for `model`.
    """
    check_judge(config.evaluation)
    means = Means(
        config=config,
        engine=engine,
        renderer=renderer,
        judge_engine=judge_engine,
        judge_renderer=judge_renderer,
    )
    return [JUDGES[name](means) for name in config.evaluation.judge]


def check_judge(evaluation: EvaluationConfig) -> None:
    """ConfigError if a judge is configured without the settings that it needs."""
    for name in evaluation.judge:
        missing = [key for key in _NEEDED[name] if getattr(evaluation, key) is None]
        if missing:
            keys = " and ".join(f"evaluation.{key}" for key in missing)
            raise ConfigError(
                f"the judge {name} needs {keys}; set it, or choose another judge (evaluation.judge=rules)"
            )


def _rules(means: Means) -> Judge:
    return RulesJudge(max_candidates=means.config.evaluation.max_candidates)


def _endpoint(means: Means) -> Judge:
    evaluation = means.config.evaluation
    key = evaluation.judge_api_key
    asker = EndpointAsker(
        str(evaluation.judge_url),
        model=str(evaluation.judge_model),
        hint_model=means.config.training.hint_extraction_model,
        api_key=None if key is None else key.get_secret_value(),
        temperature=evaluation.judge_temperature,
        max_tokens=evaluation.judge_max_tokens,
        timeout_s=evaluation.judge_timeout_s,
        retries=evaluation.judge_retries,
        concurrency=evaluation.judge_concurrency,
        daily_budget=evaluation.judge_daily_budget,
        redact=redact if evaluation.redact else str,
    )
    return _panel(means, asker)


def _self(means: Means) -> Judge:
    return _sampled(means, "self", means.engine, means.renderer, version=BASE_VERSION)


def _model(means: Means) -> Judge:
    return _sampled(means, "model", means.judge_engine, means.judge_renderer, version=None)


def _function(means: Means) -> Judge:
    evaluation = means.config.evaluation
    return FunctionJudge(str(evaluation.judge_function), timeout_s=evaluation.judge_timeout_s)


def _sampled(
    means: Means, name: JudgeName, engine: Engine | None, renderer: Renderer | None, *, version: str | None
) -> Judge:
    if engine is None or renderer is None:
        raise JudgeError(f"the judge {name} needs an engine of its own process; it judges inside `openclaw-rl up` only")
    evaluation = means.config.evaluation
    asker = EngineAsker(
        engine,
        renderer,
        version=version,
        max_tokens=evaluation.judge_max_tokens,
        temperature=evaluation.judge_temperature,
        timeout_s=evaluation.judge_timeout_s,
        concurrency=evaluation.judge_concurrency,
        name=name,
    )
    return _panel(means, asker)


def _panel(means: Means, asker: Asker) -> Judge:
    evaluation = means.config.evaluation
    return PanelJudge(
        asker,
        num_judges=evaluation.num_judges or means.config.rollout.reward_computation.num_samples,
        majority_voting=evaluation.majority_voting,
        consensus_threshold=evaluation.consensus_threshold,
        max_candidates=evaluation.max_candidates,
    )


JUDGES: Mapping[JudgeName, Callable[[Means], Judge]] = {
    "rules": _rules,
    "endpoint": _endpoint,
    "self": _self,
    "model": _model,
    "function": _function,
}

_NEEDED: Mapping[JudgeName, tuple[str, ...]] = {
    "rules": (),
    "endpoint": ("judge_url", "judge_model"),
    "self": (),
    "model": ("judge_path",),
    "function": ("judge_function",),
}
"""The settings of `evaluation` that have no default and that a judge cannot do without."""
