"""The command line: every command has its options, errors are one line, and `--help` is quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from openclaw_rl.cli import app as cli
from openclaw_rl.cli.options import load
from openclaw_rl.config import SHORTHANDS, TrainingConfig

CAPS = pytest.CaptureFixture[str]


def leaf_commands() -> dict[str, typer.core.TyperCommand]:
    group = typer.main.get_group(cli.app)
    found: dict[str, typer.core.TyperCommand] = {}
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            found |= {f"{name} {sub}": inner for sub, inner in command.commands.items()}  # type: ignore[misc]
        else:
            assert isinstance(command, typer.core.TyperCommand)
            found[name] = command
    return found


def flags(command: typer.core.TyperCommand) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


def run(capsys: CAPS, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    captured = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 0, captured.out, captured.err


@pytest.mark.parametrize("name", leaf_commands())
def test_every_command_takes_a_directory_files_and_settings_and_explains_itself(name: str, capsys: CAPS) -> None:
    command = leaf_commands()[name]
    assert flags(command) >= {"--data-dir", "--config"}
    code, out, _ = run(capsys, *name.split(), "--help")
    assert code == 0
    assert "SECTION.KEY=VALUE" in out
    assert all(parameter.help for parameter in command.params if parameter.name != "help")  # type: ignore[attr-defined]


def test_up_and_train_have_every_documented_shorthand() -> None:
    commands = leaf_commands()
    of_training = {"--checkpoint-dir", "--gpus", "--num-epochs"}
    of_work = {"--parallel-envs", "--num-rollout-workers", "--benchmark"}
    assert flags(commands["up"]) >= {*SHORTHANDS, "--engine", "--dry-run"} - of_training - of_work - {"--judge"}
    assert flags(commands["env run"]) >= {*of_work, "--async-collection", "--num-episodes", "--group-size"}
    assert flags(commands["train"]) >= {*of_training, "--method", "--rollout-dir", "--once", "--dry-run", "--json"}


def test_help_shows_the_defaults_that_the_settings_have(capsys: CAPS) -> None:
    _, out, _ = run(capsys, "train", "--help")
    told = " ".join(out.replace("│", " ").split())
    assert f"(training.num_epochs). [default: ({TrainingConfig().num_epochs})]" in told
    assert "[default: ()]" not in told


def test_a_setting_may_stand_where_an_optional_argument_may(tmp_path: Path, capsys: CAPS) -> None:
    code, _, err = run(capsys, "versions", f"store.data_dir={tmp_path}")
    assert (code, err.startswith(f"error: there is no store in {tmp_path}")) == (1, True)


def test_every_list_has_json() -> None:
    for name in ("sessions", "inspect", "judge", "rollouts test", "doctor", "config", "keys list", "keys add"):
        assert "--json" in flags(leaf_commands()[name])


def test_flags_are_settings_and_written_settings_are_stronger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENCLAW_RL__GATEWAY__PORT", raising=False)
    given = {"--port": 0, "--dry-run": True, "--engine": None, "--host": None, "--data-dir": tmp_path}
    loaded = load(None, ["gateway.port=7"], given)
    assert loaded.config.store.data_dir == tmp_path
    assert (loaded.config.gateway.port, loaded.config.engine.type) == (7, "scripted")
    assert loaded.sources["gateway.host"] == "default"


def test_a_typo_is_one_line_and_exit_status_2(capsys: CAPS) -> None:
    code, out, err = run(capsys, "up", "gateway.prt=1")
    assert (code, out) == (2, "")
    assert err.startswith("error: unknown setting gateway.prt")
    assert err.count("\n") == 1


def test_an_unknown_option_is_exit_status_2(capsys: CAPS) -> None:
    assert run(capsys, "sessions", "--nope")[0] == 2


def test_a_failure_is_one_line_and_exit_status_1(tmp_path: Path, capsys: CAPS) -> None:
    code, out, err = run(capsys, "sessions", "--data-dir", str(tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith(f"error: there is no store in {tmp_path}")


def test_a_setting_on_the_command_line_shows_up_in_config(capsys: CAPS) -> None:
    code, out, _ = run(capsys, "config", "--json", "gateway.port", "gateway.port=7")
    assert code == 0
    assert '"value":7,"source":"command line"' in out


def test_version(capsys: CAPS) -> None:
    code, out, _ = run(capsys, "--version")
    assert (code, out.split()[0]) == (0, "openclaw-rl")


def test_help_imports_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "pydantic", "sqlalchemy", "aiohttp", "prompt_toolkit", "openclaw_rl.config"}
    script = f"import sys, openclaw_rl.cli.app; print(*{heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
