"""`evaluation.judge` -> the judges. A new judge is one file and one line in JUDGES, or an import path (`function`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.config import Config, EvaluationConfig
from openclaw_rl.config.learning import JudgeName
from openclaw_rl.errors import ConfigError, JudgeError
from openclaw_rl.judge.auto import AutoJudge
from openclaw_rl.judge.function import FunctionJudge
from openclaw_rl.judge.heads import HeadsJudge, RulesJudge
from openclaw_rl.judge.heads.fit import heads_for
from openclaw_rl.judge.heads.model import Heads
from openclaw_rl.judge.heads.states import States, middle_layer
from openclaw_rl.judge.model.endpoint import EndpointAsker
from openclaw_rl.judge.model.panel import Asker, PanelJudge
from openclaw_rl.judge.model.sampled import EngineAsker
from openclaw_rl.protocols import Engine, HiddenReader, Judge, Renderer
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
    served: ServedModel | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The served model, where its engine gives hidden states: what heads are read from, and where they are kept."""

    reader: HiddenReader
    renderer: Renderer
    folder: Path
    name: str
    context_window: int
    cache: Path


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
    served: ServedModel | None = None,
) -> list[Judge]:
    """The configured judges, in the order in which they are asked.

    `engine` is the served one, for `self`; `judge_engine` runs on `evaluation.judge_path`, for `model`; `served` is for
    `heads`, None where the engine gives no hidden states.
    """
    check_judge(config.evaluation)
    means = Means(
        config=config,
        engine=engine,
        renderer=renderer,
        judge_engine=judge_engine,
        judge_renderer=judge_renderer,
        served=served,
    )
    return [JUDGES[name].make(means) for name in config.evaluation.judge]


def check_judge(evaluation: EvaluationConfig) -> None:
    """ConfigError if a judge is configured without the settings that it needs."""
    names = judges_in(evaluation)
    for name in names:
        missing = [key for key in JUDGES[name].needs if getattr(evaluation, key) is None]
        if missing:
            keys = " and ".join(f"evaluation.{key}" for key in missing)
            raise ConfigError(f"the judge {name} needs {keys}; set it, or go on without it: evaluation.judge=rules")
    if "auto" in names and evaluation.judge_path is not None and "endpoint" in names:
        raise ConfigError(
            "evaluation.judge=auto takes one model judge: leave out evaluation.judge_path, or evaluation.judge_url and "
            "evaluation.judge_model; or name a chain, such as evaluation.judge=endpoint,model"
        )
    url = evaluation.judge_url or ""
    if "endpoint" in names and url.startswith("https:") and evaluation.judge_api_key is None:
        raise ConfigError(
            "the judge endpoint needs evaluation.judge_api_key; set it (to any text where the endpoint asks for none), "
            "or go on without it: evaluation.judge=rules"
        )


def judges_in(evaluation: EvaluationConfig) -> tuple[JudgeName, ...]:
    """The judges that may be asked: with `auto` also the model judge that is configured, if one is."""
    models = _configured(evaluation) if "auto" in evaluation.judge else ()
    return (*evaluation.judge, *models)


def _configured(evaluation: EvaluationConfig) -> tuple[JudgeName, ...]:
    """The model judge whose settings are there, the first of them."""
    models: tuple[JudgeName, ...] = ("endpoint", "model")
    found = [name for name in models if any(getattr(evaluation, key) is not None for key in JUDGES[name].needs)]
    return tuple(found[:1])


def _auto(means: Means) -> Judge:
    own = _rules(means) if means.served is None else _heads(means)
    configured = _configured(means.config.evaluation)
    return AutoJudge(JUDGES[configured[0]].make(means), own) if configured else own


def _heads(means: Means) -> Judge:
    served = means.served
    if served is None:
        raise JudgeError(
            "the judge heads needs an engine that gives hidden states: engine.type=embedded, inside `openclaw-rl up`; "
            "or set evaluation.judge=rules"
        )
    states = States(served.reader, served.renderer, layer=middle_layer(served.folder), max_tokens=served.context_window)

    async def prepare() -> tuple[Heads, States]:
        return await heads_for(states, served.folder, served.name, served.cache), states

    return HeadsJudge(prepare, max_candidates=means.config.evaluation.max_candidates)


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
    "auto": JudgeMaker(_auto, reads_reactions=True),
    "heads": JudgeMaker(_heads, reads_reactions=True),
    "rules": JudgeMaker(_rules, reads_reactions=True),
    "endpoint": JudgeMaker(_endpoint, "judge_url", "judge_model", reads_reactions=True),
    "self": JudgeMaker(_self, reads_reactions=True),
    "model": JudgeMaker(_model, "judge_path", reads_reactions=True),
    "function": JudgeMaker(_function, "judge_function"),
}
