"""What a task.toml says, in Harbor's schema 1.4 and in the older keys, and what is none."""

from __future__ import annotations

import pytest

from openclaw_rl.envs.tasks.harbor.task_toml import EnvironmentTable, parse_task_toml
from openclaw_rl.errors import TaskError


def environment(text: str) -> EnvironmentTable:
    return parse_task_toml(f"[environment]\n{text}", "task.toml").environment


def test_an_empty_file_says_what_harbor_takes_for_granted() -> None:
    config = parse_task_toml("", "task.toml")
    assert (config.schema_version, config.steps, config.multi_step_reward_strategy) == ("1.4", (), None)
    assert (config.agent.timeout_sec, config.verifier.timeout_sec) == (None, 600.0)
    table = config.environment
    assert (table.os, table.network_mode, table.build_timeout_sec) == ("linux", "public", 600.0)
    assert (table.cpus, table.memory_mb, table.storage_mb, table.workdir) == (None, None, None, None)
    assert (config.own.runs_on, config.own.opening) == ("image", "")


def test_older_keys_say_what_newer_ones_do() -> None:
    config = parse_task_toml('version = "1.0"\n[environment]\nmemory = "2G"\nstorage = "512m"', "task.toml")
    assert config.schema_version == "1.0"
    assert (config.environment.memory_mb, config.environment.storage_mb) == (2048, 512)
    assert environment('memory = "1.5G"').memory_mb == 1536
    assert environment('memory = "2048K"').memory_mb == 2


def test_an_older_size_agrees_with_the_newer_one() -> None:
    assert environment('memory = "2G"\nmemory_mb = 2048').memory_mb == 2048
    with pytest.raises(TaskError, match="contradict each other"):
        environment('memory = "2G"\nmemory_mb = 1024')
    with pytest.raises(TaskError, match="such as '512M'"):
        environment('storage = "512"')


@pytest.mark.parametrize(
    ("said", "mode"),
    [
        ("allow_internet = false", "no-network"),
        ('allow_internet = "false"', "no-network"),
        ("allow_internet = 0", "no-network"),
        ("allow_internet = true", "public"),
        ('allow_internet = false\nnetwork_mode = "public"', "public"),
        ('network_mode = "no-network"', "no-network"),
    ],
)
def test_the_older_word_for_the_network_is_heard_where_the_newer_is_not_said(said: str, mode: str) -> None:
    assert environment(said).network_mode == mode


def test_the_older_word_for_the_network_is_yes_or_no() -> None:
    with pytest.raises(TaskError, match="boolean"):
        environment('allow_internet = "sometimes"')


@pytest.mark.parametrize("workdir", ["/app/", "//app", "/app/.", "/srv/../app"])
def test_a_working_directory_is_read_as_docker_reads_it(workdir: str) -> None:
    assert environment(f'workdir = "{workdir}"').workdir == "/app"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[environment", "is not TOML"),
        ("[environment]\nmemory_mb = -1", "environment.memory_mb: Input should be greater than 0"),
        ('[environment]\nworkdir = "app"', "workdir is an absolute path"),
        ("[agent]\ntimeout_sec = 0", "agent.timeout_sec"),
        ("[agent]\ntimeout_sec = inf", "finite"),
        ('[environment]\nos = "plan9"', "'linux' or 'windows'"),
        ('[environment]\nallowed_hosts = ["a.org"]', 'goes with network_mode = "allowlist"'),
        ("[agent]\nallowed_hosts = []", 'goes with network_mode = "allowlist"'),
        ('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]', "contradicts environment_mode"),
        ('[task]\nname = "nobody"', "task.name"),
        ('[task]\nname = "a/b..c"', "without '..'"),
        ('[[steps]]\nname = "a/b"', "the name of a folder"),
        ('[[steps]]\nname = "NUL.txt"', "the name of a folder"),
        ('[[steps]]\nname = "One"\n[[steps]]\nname = "one"', "the same name"),
        ('artifacts = ["../secret"]', "goes without '..'"),
        ('artifacts = [{ source = "/a", destination = "/etc" }]', "stays within its folder"),
        ('[metadata.openclaw_rl]\nruns_on = "moon"', "openclaw_rl.runs_on"),
        ("[metadata.openclaw_rl]\nspeed = 1", "Extra inputs"),
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_named(text: str, why: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse_task_toml(text, "count/task.toml")
    assert why in str(caught.value)
    assert str(caught.value).startswith("count/task.toml is ")


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(TaskError, match=r"(?s)agent\.timeout_sec.*environment\.memory_mb"):
        parse_task_toml("[agent]\ntimeout_sec = -1\n[environment]\nmemory_mb = 0", "task.toml")


def test_keys_that_the_format_does_not_have_are_left_alone() -> None:
    assert parse_task_toml('weather = "fine"\n[environment]\nmood = "good"', "task.toml").steps == ()


def test_steps_and_artifacts_are_read() -> None:
    config = parse_task_toml(
        """
        multi_step_reward_strategy = "final"
        artifacts = ["/app/out", { source = "/srv", exclude = ["*.log"], destination = "" }]
        [[steps]]
        name = "one"
        min_reward = 0.5
        [steps.agent]
        timeout_sec = 30
        [[steps]]
        name = "two"
        min_reward = { style = 1.0 }
        artifacts = ["out.txt"]
        """,
        "task.toml",
    )
    assert [step.min_reward for step in config.steps] == [0.5, {"style": 1.0}]
    assert config.steps[0].agent.timeout_sec == 30.0
    assert [(one.source, one.exclude, one.destination) for one in config.artifacts] == [
        ("/app/out", (), None),
        ("/srv", ("*.log",), None),
    ]
    assert config.steps[1].artifacts[0].source == "out.txt"
    assert config.multi_step_reward_strategy == "final"
