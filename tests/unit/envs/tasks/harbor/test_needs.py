"""What boxes here do not give: every reason at once, before anything runs. And the variables of a task's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.harbor.directory import HarborTask, read_task
from openclaw_rl.envs.tasks.harbor.needs import agent_network, check_needs, resolved, verifier_network
from openclaw_rl.errors import TaskError
from tests.fakes.harbor_tasks import PLAIN, write_task

STEPS = {"steps/one/instruction.md": "1", "steps/two/instruction.md": "2"}


def task(folder: Path, toml: str, files: dict[str, str | None] | None = None) -> HarborTask:
    return read_task(write_task(folder / "a", {"task.toml": toml, **(files or {})}))


@pytest.mark.parametrize(
    ("toml", "files", "reason"),
    [
        ('[environment]\nos = "Windows"', {}, "it is for windows"),
        ("[environment]\ngpus = 1", {}, "a GPU or TPU"),
        ('[environment.tpu]\ntype = "v6e"', {}, "a GPU or TPU"),
        ("", {"environment/docker-compose.yaml": "services: {main: {}, db: {image: redis}}"}, "several services"),
        ("", {"environment/compose.yml": "services:\n  main:\n    privileged: true"}, "asks for main.privileged"),
        ("", {"environment/compose.yaml": ""}, "describes no service that is called main"),
        ("", {"environment/compose.yaml": "services: [main]"}, "describes no service that is called main"),
        ("", {"environment/compose.yaml": "services: {db: {}}"}, "several services"),
        ("", {"environment/compose.yaml": "{"}, "describes no service that is called main"),
        ('[environment.healthcheck]\ncommand = "x"', {}, "a health check"),
        ('[environment]\nskills_dir = "/s"', {}, "skills"),
        ('[[environment.mcp_servers]]\nname = "a"', {}, "MCP servers"),
        ('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]', {}, "allows some hosts alone"),
        ('[agent]\nnetwork_mode = "allowlist"', {}, "allows some hosts alone"),
        ('[verifier]\nnetwork_mode = "allowlist"', {}, "allows some hosts alone"),
        ('[agent]\nuser = "app"', {}, "a user that is not root"),
        ("[verifier]\nuser = 1000", {}, "a user that is not root"),
        ('[[verifier.collect]]\ncommand = "x"\nuser = "db"', {}, "a user that is not root"),
        ('[[verifier.collect]]\ncommand = "x"\nservice = "db"', {}, "collects from other services"),
        ('artifacts = [{ source = "/a", service = "db" }]', {}, "artifacts of other services"),
        ("", {"trajectory.json": "{}"}, "continues a trajectory"),
        ("[verifier.environment]\ngpus = 2", {}, "a GPU or TPU"),
        (
            '[verifier]\nenvironment_mode = "separate"',
            {"tests/docker-compose.yaml": "services: {a: , b: }"},
            "several services",
        ),
        (
            '[[steps]]\nname = "one"\n[steps.healthcheck]\ncommand = "x"\n[[steps]]\nname = "two"',
            STEPS,
            "a step has a health check",
        ),
        (
            '[[steps]]\nname = "one"\n[steps.agent]\nnetwork_mode = "no-network"\n[[steps]]\nname = "two"',
            STEPS,
            "its steps have different networks",
        ),
        ('[[steps]]\nname = "one"', {**STEPS, "steps/one/trajectory.json": ""}, "continues a trajectory"),
        (
            '[[steps]]\nname = "one"\nartifacts = [{ source = "/a", service = "db" }]',
            STEPS,
            "artifacts of other services",
        ),
    ],
)
def test_what_is_not_given_is_refused(tmp_path: Path, toml: str, files: dict[str, str | None], reason: str) -> None:
    with pytest.raises(TaskError, match=f"a cannot be attempted here: .*{reason}"):
        check_needs(task(tmp_path, toml, files))


def test_all_reasons_are_told_once(tmp_path: Path) -> None:
    with pytest.raises(TaskError) as caught:
        check_needs(task(tmp_path, '[environment]\ngpus = 1\nos = "windows"\n[verifier.environment]\ngpus = 1'))
    assert str(caught.value).count("GPU") == 1
    assert "windows" in str(caught.value)


@pytest.mark.parametrize(
    "toml", [PLAIN["task.toml"], '[agent]\nuser = "root"\n[verifier]\nuser = 0', "[environment]\ngpus = 0"]
)
def test_what_is_given_passes(tmp_path: Path, toml: str) -> None:
    check_needs(task(tmp_path, toml))


@pytest.mark.parametrize(
    ("toml", "networks"),
    [
        ("", ("full", "full")),
        ('[environment]\nnetwork_mode = "no-network"', ("none", "none")),
        ('[agent]\nnetwork_mode = "no-network"', ("none", "full")),
        ('[environment]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "public"', ("none", "full")),
        ('[environment]\nnetwork_mode = "no-network"\n[verifier.environment]\nmemory_mb = 64', ("none", "full")),
    ],
)
def test_each_box_has_the_network_that_is_said_for_it(tmp_path: Path, toml: str, networks: tuple[str, str]) -> None:
    found = task(tmp_path, toml)
    assert (agent_network(found, found.steps[0]), verifier_network(found, found.steps[0])) == networks


def test_no_variable_of_this_machine_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hidden")
    said = {"A": "plain", "B": "${SECRET:-default}", "C": "${SECRET:-}", "D": "x ${SECRET}"}
    assert resolved(said, "[environment] env") == {"A": "plain", "B": "default", "C": "", "D": "x ${SECRET}"}
    with pytest.raises(TaskError, match=r"\[verifier\] env asks for the variable SECRET of this machine"):
        resolved({"KEY": "${SECRET}"}, "[verifier] env")


OFFLINE = """
services:
  main:
    build: {context: "${CONTEXT_DIR}"}
    image: ${MAIN_IMAGE_NAME}
    command: [sh, -c, sleep infinity]
    environment: ["TEST_DIR=${TEST_DIR}"]
    volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}"]
    deploy: {resources: {limits: {cpus: "${CPUS}", memory: "${MEMORY}"}}}
    network_mode: none
"""
"""How tasks were cut off the network before task.toml could say so; all else in it is what every task has."""


def test_a_compose_file_of_the_one_box_says_whether_there_is_a_network(tmp_path: Path) -> None:
    for number, (compose, network) in enumerate(((OFFLINE, "none"), (OFFLINE.replace(": none", ": bridge"), "full"))):
        found = task(tmp_path / str(number), "", {"environment/docker-compose.yaml": compose})
        check_needs(found)
        assert (agent_network(found, found.steps[0]), verifier_network(found, found.steps[0])) == (network, network)
    toml = '[verifier]\nenvironment_mode = "separate"'
    apart = task(tmp_path / "apart", toml, {"tests/docker-compose.yaml": OFFLINE})
    check_needs(apart)
    assert (agent_network(apart, apart.steps[0]), verifier_network(apart, apart.steps[0])) == ("full", "none")


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ('{context: "${CONTEXT_DIR}"}', "{context: elsewhere}"),
        ('{context: "${CONTEXT_DIR}"}', "{context: ., args: {A: 1}}"),
        ("${MAIN_IMAGE_NAME}", "redis"),
        ("[sh, -c, sleep infinity]", "[serve]"),
        ('["TEST_DIR=${TEST_DIR}"]', '["PASSWORD=1"]'),
        ('["TEST_DIR=${TEST_DIR}"]', "{A: b}"),
        ('"${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}"', '"/:/host"'),
        ('cpus: "${CPUS}"', "cpus: 64"),
        ("network_mode: none", "network_mode: host"),
    ],
)
def test_what_a_compose_file_says_beyond_that_is_named(tmp_path: Path, usual: str, other: str) -> None:
    assert usual in OFFLINE
    compose = OFFLINE.replace(usual, other)
    (field,) = [line.split(":")[0].strip() for line in OFFLINE.splitlines() if usual in line]
    with pytest.raises(TaskError, match=rf"docker-compose.yaml asks for main\.{field}, and a box has none"):
        check_needs(task(tmp_path, "", {"environment/docker-compose.yaml": compose}))
