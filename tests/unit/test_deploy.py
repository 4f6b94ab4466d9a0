"""deploy/: nothing is built here, so every setting, flag, file, route and time in it is held against the real ones."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from openclaw_rl.cli import app as cli
from openclaw_rl.config import Config, load_config, require_available
from openclaw_rl.gateway.api.openapi import describe
from tests.pages import DOCS, ROOT

FOLDER = ROOT / "deploy"
DRAIN_S = Config().gateway.drain_s
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


def read_yaml(name: str) -> Any:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def instructions(text: str) -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their words, comments and line ends taken out."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    whole = re.sub(r"\\\n\s*", " ", lines)
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in whole.splitlines() if line)]


def check_command(words: list[str], folder: Path) -> None:
    """Our own command line: the command and its flags exist, and files of settings are those that are shown to it."""
    command = typer.main.get_group(cli.app).commands[words[0]]
    flags = {option: one for one in command.params for option in one.opts if option.startswith("--")}
    rest = iter(words[1:])
    for word in rest:
        assert word in flags, f"{words[0]} has no flag {word}"
        if not getattr(flags[word], "is_flag", False):
            value = next(rest)
            if word == "--config":
                assert Path(value).name == "layout.yaml"
                assert value.startswith(str(folder)), f"{value} lies where nothing is shown"


def load(tmp_path: Path, text: str, env: dict[str, str], secrets: tuple[str, ...]) -> Config:
    """Settings as the container would see them; secret files lie in `tmp_path` here."""
    for folder in secrets:
        text = text.replace(folder, str(tmp_path))
        env = {name: value.replace(folder, str(tmp_path)) for name, value in env.items()}
    for named in (*re.findall(rf"{tmp_path}/([\w-]+)", text), *(Path(value).name for value in env.values())):
        (tmp_path / named).write_text(SECRETS.get(named, "a secret\n"))
    file = tmp_path / "layout.yaml"
    file.write_text(text)
    return load_config([file], env=env).config


SECRETS = {"store_url": "postgresql+psycopg://openclaw:pw@postgres/openclaw\n"}


def test_the_image_has_its_targets_and_copies_what_is_there() -> None:
    found = instructions(DOCKERFILE)
    stages = [rest.split()[-1] for word, rest in found if word == "FROM"]
    assert stages == ["base", "cuda", "cpu"], "the last one is built where no target is named"
    for word, rest in found:
        if word == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    assert {word for word, _ in found} <= {
        *("ARG", "FROM", "ENV", "WORKDIR", "RUN", "COPY", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"),
        *("ENTRYPOINT", "CMD"),
    }
    torch = re.search(r'ARG TORCH="(\S+)"', DOCKERFILE)
    assert torch is not None
    assert f"TORCH ?= {torch[1]}" in (ROOT / "Makefile").read_text(), "the build that is tested"


def test_the_image_runs_as_nobody_special_and_starts_a_real_command(tmp_path: Path) -> None:
    found = dict(instructions(DOCKERFILE))
    users = [rest for word, rest in instructions(DOCKERFILE) if word == "USER"]
    assert users[-1] == "openclaw"
    assert json.loads(found["ENTRYPOINT"]) == ["openclaw-rl"]
    check_command(json.loads(found["CMD"]), tmp_path)
    assert found["EXPOSE"] == str(Config().gateway.port)
    assert re.findall(r"127\.0\.0\.1:(\d+)(/\w+)", found["HEALTHCHECK"]) == [(found["EXPOSE"], "/healthz")]
    env = dict(word.split("=", 1) for word in shlex.split(found["ENV"]) if word.startswith("OPENCLAW_RL__"))
    assert load_config(env=env).config.engine.device == "cpu"


def test_the_compose_file_names_real_settings_and_shares_what_has_to_be_shared(tmp_path: Path) -> None:
    (compose,) = read_yaml("compose.yaml")
    ours = compose["services"]["openclaw"]
    (layout,) = compose["configs"].values()
    config = load(tmp_path, layout["content"], dict(ours["environment"]), ("/run/secrets",))
    assert config.engine.api_key is not None
    assert config.engine.api_key.get_secret_value() == "a secret"
    assert config.store.url is not None
    assert config.store.url.startswith("postgresql+psycopg://openclaw:pw@")
    require_available(config)
    check_command(ours["command"], Path("/etc/openclaw-rl"))
    assert set(ours["secrets"]) <= set(compose["secrets"])
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            assert source in compose["volumes"] or (FOLDER / source).exists(), volume
            if source == "adapters":
                assert target == str(config.engine.adapter_dir), "one path for both"
        assert set(service.get("depends_on", ())) <= set(compose["services"])
        assert "healthcheck" in service or service.get("image", "").startswith("prom/") or service is ours
    assert ours["stop_grace_period"].endswith("s")
    assert float(ours["stop_grace_period"][:-1]) > DRAIN_S
    gpus = [
        service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for service in compose["services"].values()
        if "deploy" in service
    ]
    assert gpus == [["1"], ["0"]], "the trainer and the server do not share one"


def test_vllm_is_started_with_the_flags_that_it_is_looked_at_for(tmp_path: Path) -> None:
    (compose,) = read_yaml("compose.yaml")
    (said,) = compose["services"]["vllm"]["command"]
    flags = set(re.findall(r"--[a-z-]+", said))
    documented = set(re.findall(r"--[a-z-]+", (DOCS / "scaling.md").read_text()))
    assert flags <= documented | {"--host", "--port", "--max-cpu-loras"}
    assert {"--enable-lora", "--enable-scale-out", "--scheduling-policy", "--logprobs-mode"} <= flags
    assert compose["services"]["vllm"]["environment"]["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    model = compose["services"]["openclaw"]["environment"]["OPENCLAW_RL__MODEL__NAME"]
    assert f"serve {model} " in said


def test_prometheus_asks_for_the_metrics_by_a_name_that_is_served() -> None:
    (compose,), (prometheus,) = read_yaml("compose.yaml"), read_yaml("prometheus.yaml")
    (job,) = prometheus["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    name, _, port = target.partition(":")
    served = json.loads(compose["services"]["openclaw"]["environment"]["OPENCLAW_RL__GATEWAY__ALLOWED_HOSTS"])
    assert name in served
    assert name in compose["services"]
    assert int(port) == Config().gateway.port
    assert job["metrics_path"] in describe()["paths"]


def test_the_pod_is_one_and_is_asked_and_stopped_as_it_must_be(tmp_path: Path) -> None:
    objects = {one["kind"]: one for one in read_yaml("kubernetes.yaml")}
    assert set(objects) == {"ConfigMap", "PersistentVolumeClaim", "Deployment", "Service"}
    text = objects["ConfigMap"]["data"]["layout.yaml"]
    config = load(tmp_path, text, {}, ("/etc/openclaw-rl-secret",))
    require_available(config)
    assert config.gateway.api_key is not None
    spec = objects["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > config.gateway.drain_s
    (container,) = pod["containers"]
    check_command(container["args"], Path("/etc/openclaw-rl"))
    paths = describe()["paths"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["path"] in paths
        assert asked["httpHeaders"] == [{"name": "Host", "value": "localhost"}], "another Host is refused"
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert mounts["settings"] == "/etc/openclaw-rl"
    assert objects["Service"]["spec"]["ports"][0]["port"] == Config().gateway.port
    assert objects["Service"]["metadata"]["name"] in config.gateway.allowed_hosts


def test_the_unit_stops_with_sigterm_and_waits_longer_than_answers_may_take(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / "openclaw-rl.service")
    service = unit["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/openclaw-rl")
    check_command(words, Path("/etc/openclaw-rl"))
    assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")
    assert float(service["TimeoutStopSec"]) > DRAIN_S
    lines = (FOLDER / "openclaw-rl.service").read_text()
    variables = dict(re.findall(r"^Environment=(OPENCLAW_RL__\w+)=(\S+)$", lines, re.MULTILINE))
    env = {name: value.replace("%d", "/run/secrets") for name, value in variables.items()}
    config = load(tmp_path, "{}", env, ("/run/secrets",))
    assert config.gateway.api_key is not None
    assert re.search(r"^LoadCredential=admin-key:", lines, re.MULTILINE)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_no_secret_is_written_down(path: Path) -> None:
    assert not re.search(r"(password|key|token)\w*\s*[:=]\s*[\"']?[A-Za-z0-9+]{16,}", path.read_text(), re.IGNORECASE)
