"""`evaluation.judge` -> the judges. A new judge is one file and one line in JUDGES, or an import path (`function`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openclaw_rl.config import Config, EvaluationConfig
from openclaw_rl.config.learning import JudgeName
from openclaw_rl.errors import ConfigError, JudgeError
from openclaw_rl.judge.function import FunctionJudge
from openclaw_rl.judge.model.endpoint import EndpointAsker
from openclaw_rl.judge.model.panel import Asker, PanelJudge
from openclaw_rl.judge.model.sampled import EngineAsker
from openclaw_rl.judge.rules import RulesJudge
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


class JudgeMaker:
    """How a judge is made, and the settings of `evaluation` without a default that it needs.

    `reads_reactions`: its score is what the person thought of the reply, so it can be asked canaries.
    """

    def __init__(self, make: Callable[[Means], Judge], *needs: str, reads_reactions: bool = False) -> None:
        self.make, self.needs, self.reads_reactions = make, needs, reads_reactions


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
        config=config, engine=engine, renderer=renderer, judge_engine=judge_engine, judge_renderer=judge_renderer
    )
    return [JUDGES[name].make(means) for name in config.evaluation.judge]


def check_judge(evaluation: EvaluationConfig) -> None:
    """ConfigError if a judge is configured without the settings that it needs."""
    for name in evaluation.judge:
        missing = [key for key in JUDGES[name].needs if getattr(evaluation, key) is None]
        if missing:
            keys = " and ".join(f"evaluation.{key}" for key in missing)
            raise ConfigError(f"the judge {name} needs {keys}; set it, or go on without it: evaluation.judge=rules")
    url = evaluation.judge_url or ""
    if "endpoint" in evaluation.judge and url.startswith("https:") and evaluation.judge_api_key is None:
        raise ConfigError(
            "the judge endpoint needs evaluation.judge_api_key; set it (to any text where the endpoint asks for none), "
            "or go on without it: evaluation.judge=rules"
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
    return FunctionJudge(
        str(evaluation.judge_function), checkpoint=evaluation.judge_path, timeout_s=evaluation.judge_timeout_s
    )


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


JUDGES: Mapping[JudgeName, JudgeMaker] = {
    "rules": JudgeMaker(_rules, reads_reactions=True),
    "endpoint": JudgeMaker(_endpoint, "judge_url", "judge_model", reads_reactions=True),
    "self": JudgeMaker(_self, reads_reactions=True),
    "model": JudgeMaker(_model, "judge_path", reads_reactions=True),
    "function": JudgeMaker(_function, "judge_function"),
}
