"""The running system's parts -> the page, and what a person decides on it or by a command."""

from __future__ import annotations

from functools import cache, partial

from openclaw_rl.config import Config, LoadedConfig
from openclaw_rl.dashboard.server.deciding import Decisions
from openclaw_rl.dashboard.server.page import Page
from openclaw_rl.dashboard.server.parts import PageParts
from openclaw_rl.gateway.api.admin import AdminCommands
from openclaw_rl.gateway.api.app import App
from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.asking import VersionAsking
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.tokens import TokenTexts
from openclaw_rl.wiring.foundation import Foundation
from openclaw_rl.wiring.learning import JudgingParts, ReleaseParts
from openclaw_rl.wiring.serving import ServingParts


def make_page(
    foundation: Foundation,
    serving: ServingParts,
    releasing: ReleaseParts,
    judging: JudgingParts | None,
    lessons: LearningStore,
    commands: AdminCommands,
    *,
    loaded: LoadedConfig | None,
) -> Page:
    """`loaded` says where each setting comes from, if anybody knows; `judging` None: this server does not learn."""
    config = foundation.config
    owner = serving.keys.key({"authorization": f"Bearer {serving.secret}"})
    return Page(
        PageParts(
            config=config,
            loaded=loaded,
            rows=open_rows(config.store),
            lessons=lessons,
            keys=serving.keys,
            owner_key=owner.id,
            live=serving.live,
            host=serving.host,
            commands=commands,
            roll_back=releasing.releaser.roll_back,
            ask=VersionAsking(serving.host.engine, foundation.renderer, releasing.releaser),
            tokens=cache(partial(TokenTexts.find, config.model)),
            metrics=serving.metrics,
            model=config.model.served_name or foundation.model.name,
            learns=judging is not None,
            num_running=lambda: serving.gateway.sessions.num_running,
            num_spent=lambda: None if judging is None else judging.num_spent,
        )
    )


def make_decisions(config: Config, app: App) -> Decisions:
    """What a person may decide about lessons, by the page or a command."""
    return Decisions(open_rows(config.store), app.put_feedback)
