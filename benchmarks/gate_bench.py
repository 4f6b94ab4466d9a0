"""The product inside one process: a store with everything around it that turns conversations into live versions.

One engine, one renderer and one trainer (`Models`) are shared by several stores (`Bench`), so that candidates can be
made in one and tried in another. People talk through the real gateway, without HTTP; judge, credit, steps, releases and
rows are the product's own, with its settings. Knows no candidate and no expectation.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self

from openclaw_rl.config import Config
from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.credit.registry import CreditSettings
from openclaw_rl.engine.embedded.loading import load_engine
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.errors import ConfigError, StoreError, TrainError
from openclaw_rl.evaluation.chat import Reply
from openclaw_rl.gateway.answer.exchange import Background, Gateway
from openclaw_rl.gateway.answer.memory import TokenMemory
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.gateway.sessions.identify import Identity
from openclaw_rl.gateway.sessions.placement import Sessions
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.judge.loop import JudgeLoop, JudgeSettings
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.release.gate.gate import Gate
from openclaw_rl.release.gate.knowledge import Knowledge
from openclaw_rl.release.gate.probes import Prober, frozen_probes
from openclaw_rl.release.gate.proving import Proving
from openclaw_rl.release.gate.trial import Tools
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.train.local import LocalTrainer
from openclaw_rl.types import Message, Request, Sampling, Tool, Turn, Version, WeightsRef, version_label
from openclaw_rl.wiring.learning import make_train_loop
from openclaw_rl.wiring.serving import new_session_id

ANSWER_TOKENS, CLOSING_TOKENS = 192, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """What computes. `folder` is the model's."""

    config: Config
    folder: Path
    renderer: Renderer
    engine: Engine
    trainer: LocalTrainer
    model_id: str
    special_ids: tuple[int, ...]
    """Tokens that are no text, but for those that end an answer."""

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Config) -> AsyncIterator[Self]:
        """As configured; the engine runs in this process, the trainer in its own."""
        if config.engine.type != "embedded":
            raise ConfigError(f"candidates are tried on the embedded engine, not on engine.type={config.engine.type}")
        model = await asyncio.to_thread(resolve_model, config.model)
        renderer = await asyncio.to_thread(load_renderer, model.path, model.name, model.tokenizer_path)
        options = {one.name: getattr(config.engine, one.name) for one in fields(EmbeddedOptions)}
        engine = await asyncio.to_thread(load_engine, model.path, EmbeddedOptions(**options))
        trainer = LocalTrainer.of(config, model.path)
        digest = hashlib.sha256((model.tokenizer_path / "tokenizer.json").read_bytes()).hexdigest()[:12]
        try:
            yield cls(
                config=config,
                folder=model.path,
                renderer=renderer,
                engine=engine,
                trainer=trainer,
                model_id=f"{config.model.checkpoint_path or model.name}#{digest}",
                special_ids=_special_ids(model.tokenizer_path / "tokenizer.json", renderer.stop_token_ids),
            )
        finally:
            await trainer.close()
            await engine.close()


def _special_ids(path: Path, stop_token_ids: Sequence[int]) -> tuple[int, ...]:
    from tokenizers import Tokenizer

    added = Tokenizer.from_file(str(path)).get_added_tokens_decoder()
    return tuple(at for at, token in sorted(added.items()) if token.special and at not in stop_token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A reply, and when its first token came and when its turn was on disk, by the monotonic clock."""

    reply: Reply
    first_at: float
    recorded_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One store and its loops, worked by hand."""

    models: Models
    config: Config
    store: SqliteStore
    gateway: Gateway
    releaser: Releaser
    _judging: JudgeLoop
    _crediting: CreditLoop

    @classmethod
    @asynccontextmanager
    async def open(cls, models: Models, directory: Path) -> AsyncIterator[Self]:
        """In a directory that may be there already."""
        config = models.config.model_copy(
            update={"store": models.config.store.model_copy(update={"data_dir": directory})}
        )
        renderer, engine = models.renderer, models.engine
        store = await SqliteStore.open(directory)
        live, lessons = LiveVersions(), store.lessons
        await lessons.run_with(models.model_id)
        gateway = Gateway(
            engine=engine,
            renderer=renderer,
            store=store,
            sessions=Sessions(timeout_s=config.rollout.session_timeout_s, new_id=new_session_id),
            memory=TokenMemory(store.get_turn, model_id=models.model_id),
            background=Background(),
            model_id=models.model_id,
            live_label=live.label,
        )
        prober = Prober(engine, renderer, frozen_probes(renderer), max_tokens=config.release.answer_tokens)
        limits = config.release
        knowledge = Knowledge(engine, renderer, limits, model_id=models.model_id)
        tools = Tools(prober=prober, renderer=renderer, knowledge=knowledge, limits=limits)
        proving = Proving(
            engine,
            prober,
            models.trainer,
            settings=config.training.model_dump(mode="json"),
            min_tokens=config.release.probe_tokens,
            min_correlation=config.release.min_correlation,
        )
        releaser = Releaser(
            lessons,
            engine,
            Gate(engine, tools, log=lessons, model_id=models.model_id, proving=proving),
            live,
            proving=proving,
            keeper=models.trainer,
            save_every=config.training.save_every,
        )
        settings = CreditSettings.of(config.training, config.rollout)
        try:
            await releaser.restore()
            yield cls(
                models=models,
                config=config,
                store=store,
                gateway=gateway,
                releaser=releaser,
                _judging=JudgeLoop(lessons, [RulesJudge()], JudgeSettings.of(config), canaries=None, watch=Metrics()),
                _crediting=CreditLoop(lessons, renderer, settings, models.model_id),
            )
        finally:
            await gateway.background.drain()
            await store.close()

    @property
    def versions_folder(self) -> Path:
        return self.config.store.data_dir / "versions"

    async def ask(
        self,
        user: str,
        messages: Sequence[Message],
        *,
        session: str,
        seed: int,
        tools: Sequence[Tool] = (),
        max_tokens: int = ANSWER_TOKENS,
        is_last: bool = False,
    ) -> Asked:
        """One request of a user to its end, as the gateway answers it; it is on disk then."""
        drawn = zlib.crc32(f"{seed}/{session}/{len(messages)}".encode()) >> 1
        sampling = Sampling(max_tokens=max_tokens, temperature=self.config.gateway.default_temperature, seed=drawn)
        request = Request(messages=tuple(messages), tools=tuple(tools), sampling=sampling)
        identity = Identity(client="benchmark", session_key=session, kind="main", session_done=is_last)
        exchange = await self.gateway.begin(request, identity, user=user, digest=repr(request), dialect="chat")
        first_at = 0.0
        async with aclosing(exchange.pieces()) as pieces:
            async for _ in pieces:
                first_at = first_at or time.monotonic()
        await exchange.commit()
        recorded_at = time.monotonic()
        await exchange.delivered()
        ((message, completion),) = exchange.answers
        reply = Reply(
            text=message.content,
            version=exchange.version,
            turn_id=exchange.turn_ids[0],
            num_tokens=len(completion.token_ids),
            finish_reason=completion.finish_reason,
            tool_calls=message.tool_calls,
        )
        return Asked(reply=reply, first_at=first_at or recorded_at, recorded_at=recorded_at)

    async def judge(self) -> None:
        """Until everything that was said is judged."""
        while await self._judging.work():
            pass

    async def credit(self) -> None:
        """Until everything that was said is a sample, or skipped."""
        await self.judge()
        while await self._crediting.work():
            pass

    async def step(self, *, seed: int) -> None:
        """Takes a whole batch of what waits, if there is one; what comes of it answers at once, without a gate."""
        training = self.config.training.model_copy(update={"max_wait_s": None, "seed": seed})
        config = self.config.model_copy(update={"training": training})

        async def put_live(version: Version) -> None:
            await self.releaser.roll_back(version.line, version.number, untried=True)

        lessons, models = self.store.lessons, self.models
        loop = make_train_loop(config, lessons, models.trainer, models.renderer, release=put_live)
        await loop.work(max_steps=1)

    async def release(self, version: Version) -> tuple[Version, float]:
        """Puts a candidate to quick check and proof; its row after that, and how many seconds that took."""
        began_at = time.monotonic()
        with suppress(TrainError):  # that it is rejected is on its row
            await self.releaser.release(version)
        return await self.version(version.line, version.number), time.monotonic() - began_at

    async def confirm(self, version: Version) -> tuple[Version, float]:
        """The full check of a version that answers on probation; its row after that, and how many seconds that took."""
        began_at = time.monotonic()
        await self.releaser.confirm_now(version.line)
        return await self.version(version.line, version.number), time.monotonic() - began_at

    async def put_candidate(self, line: str, folder: Path, sha256: str) -> Version:
        """A copy of these files as the next candidate of a line; what they claim to hash to is believed here."""

        def place(number: int) -> WeightsRef:
            target = self.versions_folder / version_label(line, number) / "weights"
            shutil.copytree(folder, target)
            return WeightsRef.of_folder(target, sha256)

        return await self.store.lessons.put_imported(line, place)

    async def version(self, line: str, number: int) -> Version:
        """Its row, as it is now."""
        (found,) = [one for one in await self.store.lessons.versions(line) if one.number == number]
        return found

    async def copy_turns(self, other: Bench, line: str, *, to: str, until: float) -> None:
        """What a line's user said elsewhere up to then becomes this line's past, word by word, and is judged."""
        theirs = other.store.lessons
        for name in await theirs.sessions_of(line):
            turns = [turn for turn in await theirs.turns(name) if turn.finished_at <= until]
            session = await theirs.get_session(name)
            copied = f"{to}-{name}"
            if turns and session is not None and await self.store.lessons.get_session(copied) is None:
                await self.store.put_session(replace(session, id=copied, user=to, key=None))
                for turn in turns:
                    await self._copy_turn(other, turn, copied)
        await self.judge()

    async def _copy_turn(self, other: Bench, turn: Turn, session: str) -> None:
        await self.store.put_turn(replace(turn, session=session))
        followed = await other.store.lessons.next_state(turn.session, turn.index)
        if followed is not None:
            await self.store.put_next_state(replace(followed, session=session))


class DirectChat:
    """`evaluation.chat.Chat`: one user of a bench, without HTTP."""

    def __init__(self, bench: Bench, user: str, *, seed: int) -> None:
        self._bench = bench
        self._user = user
        self._seed = seed

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        session: str,
        model: str | None = None,
        tools: Sequence[Tool] = (),
        closing: bool = False,
    ) -> Reply:
        if model is not None:
            raise StoreError("only the version that is live answers here")
        asked = await self._bench.ask(
            self._user,
            messages,
            session=session,
            seed=self._seed,
            tools=tools,
            max_tokens=CLOSING_TOKENS if closing else ANSWER_TOKENS,
            is_last=closing,
        )
        return asked.reply
