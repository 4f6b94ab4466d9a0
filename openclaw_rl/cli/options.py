"""The options that every command has, declared once, and how they become settings.

    room = typer.Typer()

    @command(room, flags=("--model",))
    def train(loaded: Loaded, once: Annotated[bool, typer.Option("--once", help="One step.")] = False) -> None: …

The command then takes `--model`, `--data-dir`, `--config` and any SECTION.KEY=VALUE, and receives the settings that
they make as `loaded`. A flag is one row of `FLAGS` and one of `config.SHORTHANDS`, which says what setting it sets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from openclaw_rl.config import LoadedConfig

    Loaded = LoadedConfig
else:
    Loaded = object  # config takes 0.2 s to import, and `--help` does not need it


def opt(flag: str, told: str, **more: Any) -> Any:
    """An option and, behind its flag, what stands for its value: `opt("--limit N", "Only the N seen last.")`."""
    name, _, metavar = flag.partition(" ")
    return typer.Option(name, metavar=metavar or None, help=told, **more)


def arg(metavar: str, told: str) -> Any:
    return typer.Argument(metavar=metavar, help=told)


AsJson = Annotated[bool, opt("--json", "JSON on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
User = Annotated[str, opt("--user USER", "Whose version.")]
OnlyUser = Annotated[str | None, opt("--user USER", "Only this user's.")]
Key = Annotated[str | None, opt("--key KEY", "Its API key.", show_default="the one in DIR/key")]
ConfigFiles = Annotated[list[Path] | None, opt("--config FILE", "YAML or JSON settings; repeatable.")]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that stands for a setting. `default` is shown where the setting's own default is empty."""

    metavar: str
    help: str
    default: str = ""
    sets: str = ""
    """For a switch: what it sets, as SECTION.KEY=VALUE."""


FLAGS: Mapping[str, Flag] = {
    "--data-dir": Flag("DIR", "Where everything is kept."),
    "--host": Flag("HOST", "Address to listen on."),
    "--port": Flag("PORT", "Port to listen on; 0 takes any free one."),
    "--model": Flag("NAME", "The embedded model's name, a Hugging Face folder, or a hub name."),
    "--engine": Flag("NAME", "Which engine samples: embedded, scripted, …"),
    "--dry-run": Flag("", "Answer with the scripted engine: everything but a model.", sets="engine.type=scripted"),
    "--method": Flag("NAME", "How it learns (training.method)."),
    "--backend": Flag("NAME", "Where it learns (training.backend)."),
    "--checkpoint-dir": Flag("DIR", "Where versions go (training.save_path).", default="DIR/versions"),
    "--gpus": Flag("LIST", "The GPU that trains, by number (training.gpu_ids)."),
    "--num-epochs": Flag("N", "How often each batch is gone through (training.num_epochs)."),
    "--parallel-envs": Flag("N", "Attempts at once (rollout.parallel_envs)."),
    "--num-rollout-workers": Flag("N", "Groups at once (rollout.num_workers)."),
    "--async-collection": Flag("", "Collect while training goes on: always so.", sets="rollout.collection_mode=async"),
    "--benchmark": Flag("SET", "Where tasks come from without --tasks (rollout.benchmark)."),
    "--judge": Flag("NAME", "auto, heads, rules, endpoint, self, model, function, or a chain: rules,self."),
}


def load(
    files: Sequence[Path] | None, overrides: Sequence[str] | None, flags: Mapping[str, object] | None = None
) -> Loaded:
    """The settings with everything from the command line in them; a `section.key=value` is stronger than a flag."""
    from openclaw_rl.config import SHORTHANDS, load_config

    short = [
        FLAGS[flag].sets or f"{SHORTHANDS[flag]}={value}"
        for flag, value in (flags or {}).items()
        if value is not None and value is not False
    ]
    return load_config(list(files or ()), overrides=[*short, *(overrides or ())])


def command(
    room: typer.Typer, name: str | None = None, *, flags: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function with the options that every command has, and `flags`.

    A setting may also stand where an optional argument may. A function with an argument `keys` gets there what of the
    settings has no value: the names alone.
    """
    flags = (*flags, "--data-dir")

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(function, eval_str=True).parameters.values() if one.name != "loaded"]
        takes_keys = any(one.name == "keys" for one in own)
        arguments = [one.name for one in own if one.default is None and _is_argument(one)]

        @wraps(function)
        def run(config: list[Path] | None, settings: list[str] | None, **given: Any) -> None:
            words = settings or []
            for argument in arguments:
                if "=" in (given[argument] or ""):
                    words, given[argument] = [given[argument], *words], None
            if takes_keys:
                given["keys"] = [word for word in words if "=" not in word]
                words = [word for word in words if "=" in word]
            chosen = {flag: given.pop(_name(flag)) for flag in flags}
            function(loaded=load(config, words, chosen), **given)

        annotations = {_name(flag): _option(flag) for flag in flags} | {"config": ConfigFiles}
        annotations["settings"] = _words(takes_keys=takes_keys)
        added = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for each, annotation in annotations.items()
        ]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own if one.name != "keys"] + added
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        room.command(name, cls=SettingsCommand)(run)
        return run

    return register


class SettingsCommand(TyperCommand):
    """Its help shows the default of a flag as the settings have it."""

    def get_help(self, ctx: Any) -> str:
        from openclaw_rl.config import SHORTHANDS, load_config

        defaults = load_config(env={}).config
        for option in self.params:
            flag = option.opts[0]
            if flag in FLAGS and flag in SHORTHANDS and not FLAGS[flag].sets:
                value: Any = defaults
                for part in SHORTHANDS[flag].split("."):
                    value = getattr(value, part)
                shown = str(value).replace(str(Path.home()), "~") if isinstance(value, (str, int, Path)) else ""
                option.show_default = shown or FLAGS[flag].default or False  # type: ignore[attr-defined]
        return super().get_help(ctx)


def _option(flag: str) -> Any:
    row = FLAGS[flag]
    if row.sets:
        return Annotated[bool, opt(flag, row.help)]
    return Annotated[str | None, opt(f"{flag} {row.metavar}", row.help)]


def _words(*, takes_keys: bool) -> Any:
    metavar, told = "SECTION.KEY=VALUE", "Any setting; `openclaw-rl config` lists them."
    if takes_keys:
        metavar, told = f"KEY|{metavar}", "Only these settings or sections; or set some."
    return Annotated[list[str] | None, arg(metavar, told)]


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(one, typer.models.ArgumentInfo) for one in getattr(parameter.annotation, "__metadata__", ()))
