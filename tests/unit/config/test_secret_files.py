"""Secrets from files: a value `file:PATH`, and variables that end in _FILE."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.config import dump, load_config
from openclaw_rl.errors import ConfigError

VARIABLE = "OPENCLAW_RL__GATEWAY__API_KEY"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("ocrl-hunter2\n")
    return path


def test_a_value_names_the_file(file: Path) -> None:
    for loaded in (
        load_config(env={}, overrides=[f"gateway.api_key=file:{file}"]),
        load_config(env={f"{VARIABLE}_FILE": str(file)}),
    ):
        key = loaded.config.gateway.api_key
        assert key is not None
        assert key.get_secret_value() == "ocrl-hunter2"
        assert "hunter2" not in dump(loaded.config)


def test_an_address_with_a_password_comes_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql+psycopg://me:hunter2@db/x\n")
    config = load_config(env={"OPENCLAW_RL__STORE__URL_FILE": str(tmp_path / "url")}).config
    assert config.store.url == "postgresql+psycopg://me:hunter2@db/x"
    assert "hunter2" not in dump(config)


@pytest.mark.parametrize(("text", "told"), [(None, "cannot be read"), ("", "is empty"), (" \n", "is empty")])
def test_a_file_without_a_secret_is_refused(tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "nothing"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        load_config(env={f"{VARIABLE}_FILE": str(path)})


def test_only_secrets_come_from_files(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"set gateway\.port itself"):
        load_config(env={"OPENCLAW_RL__GATEWAY__PORT_FILE": str(file)})
    with pytest.raises(ConfigError, match="unknown"):
        load_config(env={"OPENCLAW_RL__GATEWAY__PORD_FILE": str(file)})


def test_the_file_is_weaker_than_the_command_line(file: Path) -> None:
    loaded = load_config(env={f"{VARIABLE}_FILE": str(file)}, overrides=["gateway.api_key=other-key"])
    assert loaded.config.gateway.api_key is not None
    assert loaded.config.gateway.api_key.get_secret_value() == "other-key"
