"""The parts that learn: the judge, credit, train and release loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openclaw_rl.config import Config, TrainingConfig
from openclaw_rl.credit.demonstrations import Demonstrator
from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.credit.practice import Practice
from openclaw_rl.credit.registry import CreditSettings
from openclaw_rl.credit.samples import within_caps
from openclaw_rl.engine.registry import capabilities_of, make_host, second_engine
from openclaw_rl.errors import ConfigError
from openclaw_rl.evaluation.exam import Examiner
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.judge.canaries import Canaries
from openclaw_rl.judge.heads import HeadsJudge
from openclaw_rl.judge.loop import JudgeLoop, JudgeSettings
from openclaw_rl.judge.model.panel import Budgeted
from openclaw_rl.judge.registry import JUDGES, ServedModel, judges_in, make_judges
from openclaw_rl.judge.rules import form_words
from openclaw_rl.model.files import inspect_folder
from openclaw_rl.protocols import (
    Engine,
    EngineGroup,
    EngineHost,
    HiddenReader,
    Judge,
    LearningStore,
    Renderer,
    TaskExam,
    Trainer,
    WaitingSamples,
)
from openclaw_rl.release.gate.gate import Gate
from openclaw_rl.release.gate.knowledge import Knowledge
from openclaw_rl.release.gate.probes import Prober, frozen_probes
from openclaw_rl.release.gate.proving import Proving
from openclaw_rl.release.gate.trial import Tools
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.release.watch import Watch
from openclaw_rl.render import load_renderer
from openclaw_rl.tracking import Observers
from openclaw_rl.train.anchor_prompts import ANCHORS
from openclaw_rl.train.loop import LoopSettings, TrainLoop
from openclaw_rl.train.planning import Planner
from openclaw_rl.train.registry import make_keeper, new_trainer
from openclaw_rl.types import (
    BASE_VERSION,
    Candidate,
    Credit,
    JudgedTurn,
    KeyTerms,
    Message,
    Sample,
    Skip,
    Step,
    StepOrder,
    Version,
    VersionSpan,
)
from openclaw_rl.wiring.foundation import Foundation


async def make_judge_host(config: Config, sockets: Path) -> tuple[EngineHost, Renderer]:
    """The engine on the weights of the model judge."""
    path = config.evaluation.judge_path
    assert path is not None, "check_judge has seen it"
    files = await asyncio.to_thread(inspect_folder, path.name, path, tokenizer_path=path)
    renderer = await asyncio.to_thread(load_renderer, files.path, files.name, files.tokenizer_path)
    second = second_engine(config.engine, config.evaluation.judge_gpu_ids)
    return make_host(second, files, sockets / "judge.sock", name="judge engine"), renderer


def make_judge_loop(config: Config, lessons: LearningStore, judges: Sequence[Judge], metrics: Metrics) -> JudgeLoop:
    """`judges` are those of `evaluation.judge`, in its order."""
    canaries = Canaries.shipped() if config.evaluation.canaries else None
    named = zip(config.evaluation.judge, judges, strict=True)
    unseen = [judge for name, judge in named if not JUDGES[name].reads_reactions]
    return JudgeLoop(lessons, judges, JudgeSettings.of(config), canaries=canaries, unseen=unseen, watch=metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingParts:
    """`host` is the second engine, of the model judge; None where no judge needs one."""

    loop: JudgeLoop
    judges: Sequence[Judge]
    host: EngineHost | None

    async def prepared(self) -> None:
        """Waits for what judges have to load."""
        for judge in self.judges:
            if isinstance(judge, HeadsJudge):
                await judge.prepared()

    @property
    def num_spent(self) -> int | None:
        """Votes of the judge's daily budget that are spent; None: there is no budget."""
        return next(
            (spent for one in self.judges if isinstance(one, Budgeted) and (spent := one.num_spent) is not None), None
        )

    async def close(self) -> None:
        for judge in self.judges:
            await judge.close()


def served_model(foundation: Foundation, engine: Engine) -> ServedModel | None:
    """What heads are read from; None where the engine gives no hidden states."""
    can = capabilities_of(foundation.config.engine).hidden
    if not can or not isinstance(engine, HiddenReader):
        return None
    model = foundation.model
    return ServedModel(
        reader=engine,
        renderer=foundation.renderer,
        folder=model.path,
        name=model.name,
        context_window=min(model.context_window, foundation.config.engine.context_window or model.context_window),
        cache=foundation.config.model.cache_dir / "heads",
    )


async def make_judging(
    foundation: Foundation, lessons: LearningStore, engine: Engine, sockets: Path, metrics: Metrics
) -> JudgingParts:
    """The judges beside serving: `self` asks the served engine."""
    config, host, renderer = foundation.config, None, None
    if "model" in judges_in(config.evaluation):
        host, renderer = await make_judge_host(config, sockets)
    judges = make_judges(
        config,
        engine=engine,
        renderer=foundation.renderer,
        judge_engine=None if host is None else host.engine,
        judge_renderer=renderer,
        served=served_model(foundation, engine),
    )
    return JudgingParts(loop=make_judge_loop(config, lessons, judges, metrics), judges=judges, host=host)


def make_credit_loop(
    foundation: Foundation, lessons: LearningStore, engine: Engine | None, metrics: Metrics, observers: Observers
) -> CreditLoop:
    """Without an engine nobody can demonstrate anything."""
    config = foundation.config

    def on_credit(judged: JudgedTurn, credit: Credit) -> None:
        metrics.credited(credit.skip or "sample")
        observers.credited(judged, credit)

    settings = CreditSettings.of(config.training, config.rollout)
    demonstrator = None
    has_weights = capabilities_of(config.engine).has_weights
    if engine is not None and has_weights and config.training.demonstrations != "off":
        demonstrator = Demonstrator(engine, foundation.renderer, lessons, foundation.model_id)
    return CreditLoop(
        lessons,
        foundation.renderer,
        settings,
        foundation.model_id,
        demonstrator=demonstrator,
        on_credit=on_credit,
    )


def make_trainer(foundation: Foundation) -> Trainer | None:
    """None where there are no weights to train. It starts with its first order.

    `ConfigError` where the engine could not serve, or not prove, what is trained.
    """
    config = foundation.config
    engine, use_lora = config.engine, config.training.use_lora
    can = capabilities_of(engine)
    if not can.has_weights:
        return None
    trains = "training.use_lora=true" if use_lora else "training.use_lora=false"
    if not can.scores:
        raise ConfigError(
            f"engine.type={engine.type} gives no log-probs of given tokens, so no version could be proved; "
            "choose engine.type=embedded, or serve without learning (`openclaw-rl serve`)"
        )
    if not (can.hot_adapters if use_lora else can.full_weights):
        other = "engine.type=embedded"
        if can.full_weights or can.hot_adapters:
            other += f", or training.use_lora={str(not use_lora).lower()}"
        raise ConfigError(f"engine.type={engine.type} cannot serve what {trains} makes; choose {other}")
    return new_trainer(config, foundation.model.path)


def make_train_loop(
    config: Config,
    lessons: LearningStore,
    trainer: Trainer,
    renderer: Renderer,
    *,
    release: Callable[[Version], Awaitable[None]],
    on_step: Callable[[Step], None] = lambda _: None,
    on_skip: Callable[[str, Sequence[str], Skip], None] = lambda *_: None,
    on_waiting: Callable[[str], None] = lambda _: None,
    terms_of: Callable[[str], KeyTerms] = lambda _: KeyTerms(),
) -> TrainLoop:
    """The loop beside serving, and that of `openclaw-rl train`, which has no engine."""
    training = config.training
    prompts = [renderer.render([Message(role="user", content=text)], (), {}) for text in ANCHORS]
    settings = LoopSettings(
        batch_size=training.batch_size,
        max_wait_s=training.max_wait_s,
        pause_s=training.pause_s,
        training=training.model_dump(mode="json"),
        max_line_share=training.max_line_share,
        anchors=tuple(map(tuple, prompts)),
        stop_token_ids=tuple(renderer.stop_token_ids),
    )
    at_tasks = training.for_line("env:any")
    of_tasks = replace(
        settings,
        batch_size=at_tasks.batch_size,
        max_wait_s=None if training.max_wait_s is None else training.task_wait_s,
        max_line_share=1.0,
        waits_from_newest=True,
        training=at_tasks.model_dump(mode="json"),
    )
    return TrainLoop(
        lessons,
        trainer,
        make_planner(training, lessons, on_skip=on_skip),
        settings,
        of_tasks=of_tasks,
        release=release,
        practice=Practice(renderer, form_words, num_exercises=training.exercises),
        on_step=on_step,
        on_waiting=on_waiting,
        terms_of=terms_of,
    )


def make_rehearsal(config: Config, renderer: Renderer) -> StepOrder:
    """A step like those to come, on words that nobody said: one fixed prompt, answered with another one."""
    prompt, said = (
        tuple(renderer.render([Message(role="user", content=text)], (), {})) for text in (ANCHORS[0], " ".join(ANCHORS))
    )
    sample = Sample(
        id="rehearsal",
        line="rehearsal",
        kind="turn",
        session="",
        index=0,
        prompt_index=0,
        created_at=0.0,
        prompt_ids=prompt,
        response_ids=said,
        loss_mask=(True,) * len(said),
        advantages=(1.0,) * len(said),
        logprobs=(0.0,) * len(said),
        temperature=1.0,
        on_policy=True,
        reward=1.0,
        w_rl=1.0,
        w_opd=1.0,
        candidates=(Candidate(hint="", num_shared=0, suffix_ids=prompt),),
        version_spans=(VersionSpan(BASE_VERSION, 0, len(said)),),
    )
    return StepOrder(
        line=sample.line,
        number=1,
        parent=None,
        parent_number=0,
        seed=0,
        settings={**config.training.model_dump(mode="json"), "num_epochs": 1},
        samples=(sample,),
        stop_token_ids=tuple(renderer.stop_token_ids),
    )


def make_planner(
    training: TrainingConfig,
    log: WaitingSamples,
    *,
    on_skip: Callable[[str, Sequence[str], Skip], None] = lambda *_: None,
) -> Planner:
    def within_caps_only(samples: Sequence[Sample]) -> Sequence[Sample]:
        """Those of one line."""
        taken, _ = within_caps(
            samples,
            batch_size=training.for_line(samples[0].line).batch_size if samples else 1,
            user_of=lambda sample: sample.line,
            max_user_share=training.max_user_share,
            max_session_share=training.max_session_share,
        )
        return taken

    return Planner(log, training, choose=within_caps_only, on_skip=on_skip)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseParts:
    """`watch` is None if it is switched off (`release.watch`)."""

    releaser: Releaser
    examiner: Examiner
    watch: Watch | None


def make_release(
    foundation: Foundation,
    lessons: LearningStore,
    host: EngineHost,
    live: LiveVersions,
    observers: Observers,
    *,
    trainer: Trainer | None,
    tasks: TaskExam | None = None,
) -> ReleaseParts:
    """Gate, proof, releaser, and those who look at what is live. Without a trainer candidates cannot be proved: they
    wait. Without `tasks` versions of environments' lines are tried on replayed turns alone."""
    config, renderer, engine = foundation.config, foundation.renderer, host.engine
    settings = config.release
    prober = Prober(engine, renderer, frozen_probes(renderer), max_tokens=settings.answer_tokens)
    knowledge = Knowledge(engine, renderer, settings, model_id=foundation.model_id)
    tools = Tools(prober=prober, renderer=renderer, knowledge=knowledge, limits=settings, tasks=tasks)
    proving = (
        None
        if trainer is None
        else Proving(
            engine,
            prober,
            trainer,
            settings=config.training.model_dump(mode="json"),
            min_tokens=settings.probe_tokens,
            min_correlation=settings.min_correlation,
            reports_checksum=host.capabilities.reports_checksum,
            group=host if isinstance(host, EngineGroup) else None,
        )
    )

    gate = Gate(engine, tools, log=lessons, model_id=foundation.model_id, proving=proving)

    async def on_measured(line: str, number: int, measures: Mapping[str, float]) -> None:
        step = await lessons.add_metrics(line, number, measures)
        if step is not None:
            observers.evaluated(replace(step, metrics=measures))

    def on_change(version: Version) -> None:
        observers.changed(version)
        examiner.changed(version)

    examiner = Examiner(
        engine,
        renderer,
        lambda line, number: releaser.loaded(line, number),
        every=config.evaluation.eval_frequency,
        on_measured=on_measured,
    )
    releaser = Releaser(
        lessons,
        engine,
        gate,
        live,
        proving=proving,
        keeper=trainer or make_keeper(config),
        save_every=config.training.save_every,
        probation=settings.probation,
        on_change=on_change,
    )
    live.on_lost = releaser.unreadable
    watch = Watch(lessons, releaser.roll_back, settings) if settings.watch else None
    return ReleaseParts(releaser=releaser, examiner=examiner, watch=watch)
