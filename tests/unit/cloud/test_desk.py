"""Consent, what is remembered of a service, and what a worker is told: without an SDK, and without a service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.cloud.desk import ServiceDesk
from openclaw_rl.cloud.service import Abilities
from openclaw_rl.config import load_config
from openclaw_rl.errors import ConfigError

SEEN = Abilities(
    context_window=64,
    prompt_logprobs=True,
    likely_tokens=True,
    chosen_tokens=True,
    wide_targets=True,
    policy_loss=True,
)
NOWHERE = "training.tinker_url=http://127.0.0.1:9"


def desk(folder: Path, *settings: str) -> ServiceDesk:
    given = [f"store.data_dir={folder}", "training.backend=tinker", NOWHERE, "model.name=org/model", *settings]
    return ServiceDesk.of(load_config(env={"TINKER_API_KEY": "tml-secret"}, overrides=given).config)


def test_nothing_leaves_before_somebody_agreed(tmp_path: Path) -> None:
    one = desk(tmp_path)
    for ask in (one.survey, one.environment, lambda: one.remove(["tinker://run/sampler_weights/v1"])):
        with pytest.raises(ConfigError, match="What leaves this machine: .* training.cloud.consent=true"):
            ask()
    assert desk(tmp_path, "training.cloud.consent=true").has_consent
    one.agree()
    assert desk(tmp_path).has_consent, "asked once"
    assert not desk(tmp_path, "training.tinker_url=http://10.0.0.5").has_consent, "and for each service anew"


def test_a_worker_gets_the_key_in_its_environment_and_nowhere_else(tmp_path: Path) -> None:
    one = desk(tmp_path, "training.cloud.consent=true", "training.cloud.sdk_path=/sdk")
    found = one.environment()
    assert found["TINKER_API_KEY"] == "tml-secret"
    assert found["PYTHONPATH"].split(":")[0] == "/sdk"
    remember(one)
    assert "tml-secret" not in json.dumps(one.options()) + repr(one.options())


def remember(one: ServiceDesk, **identity: str) -> None:
    told = {"service": "tinker", "url": "http://127.0.0.1:9", "base_model": "org/model", **identity}
    one.folder.mkdir(parents=True, exist_ok=True)
    (one.folder / "survey.json").write_text(json.dumps({"access": told, "abilities": SEEN.to_json()}))


def test_what_was_seen_of_this_service_and_model_is_believed(tmp_path: Path) -> None:
    one = desk(tmp_path)
    remember(one)
    assert one.abilities() == SEEN
    remember(one, base_model="org/other")
    with pytest.raises(ConfigError, match="What leaves this machine"):
        one.abilities()  # it would have to be looked at
