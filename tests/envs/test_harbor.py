"""Harbor itself as the oracle of how we read its task directories; and directories as its own `harbor init` makes.

Harbor needs Python 3.12, which need not be ours: the newest that is found makes a venv for it in the cache. Another
venv that has Harbor is named by HARBOR_PYTHON=/path/to/python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.checking import Checked, check_task
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.tasks.harbor.directory import BoxSource, HarborTask, read_task
from openclaw_rl.envs.tasks.harbor.needs import check_needs
from openclaw_rl.envs.tasks.harbor.task_toml import EnvironmentTable, TaskToml, parse_task_toml
from openclaw_rl.envs.terminal.environment import TerminalEnvironment
from openclaw_rl.envs.terminal.shipped.sets import SETS, written
from openclaw_rl.errors import TaskError
from openclaw_rl.types import TaskRef
from tests.fakes.boxes import make_image, sandbox_or_skip
from tests.fakes.harbor_tasks import PLAIN, write_task
from tests.fakes.oracles import newest_python, python_with

pytestmark = [pytest.mark.envs, pytest.mark.timeout(1200)]

HARBOR = "harbor==0.24.0"
EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"


@pytest.fixture(scope="session")
def python() -> Path:
    """A Python that has Harbor."""
    if named := os.environ.get("HARBOR_PYTHON"):
        return Path(named)
    found = newest_python((3, 12))
    if found is None:
        pytest.skip("Harbor needs Python 3.12 or newer, and none is found on PATH or in ~/.pyenv/versions")
    return python_with(HARBOR, python=found)


def ask(python: Path, questions: Sequence[Mapping[str, str]]) -> list[Any]:
    oracle = Path(__file__).with_name("harbor_oracle.py")
    said = subprocess.run(
        (python, oracle), input=json.dumps(questions), capture_output=True, text=True, check=True, cwd="/"
    )
    answers: list[Any] = json.loads(said.stdout)
    return answers


def box(table: EnvironmentTable) -> dict[str, Any]:
    names = ("build_timeout_sec", "docker_image", "os", "cpus", "memory_mb", "storage_mb", "gpus", "env", "skills_dir")
    return {name: getattr(table, name) for name in (*names, "network_mode")} | {
        "workdir": table.workdir,
        "allowed_hosts": list(table.allowed_hosts or ()),
        "has_healthcheck": table.healthcheck is not None,
        "num_mcp_servers": len(table.mcp_servers),
        "has_tpu": table.tpu is not None,
    }


def harbors_box(said: dict[str, Any]) -> dict[str, Any]:
    names = ("build_timeout_sec", "docker_image", "os", "cpus", "memory_mb", "storage_mb", "gpus", "env", "skills_dir")
    return {name: said[name] for name in (*names, "network_mode")} | {
        "workdir": said["workdir"] and os.path.normpath(said["workdir"]),
        "allowed_hosts": said["allowed_hosts"] or [],
        "has_healthcheck": said["healthcheck"] is not None,
        "num_mcp_servers": len(said["mcp_servers"]),
        "has_tpu": said["tpu"] is not None,
    }


def phase(table: Any) -> dict[str, Any]:
    return {
        "timeout_sec": table.timeout_sec,
        "user": table.user,
        "network_mode": table.network_mode,
        "allowed_hosts": list(table.allowed_hosts or ()),
    }


def harbors_phase(said: dict[str, Any]) -> dict[str, Any]:
    return {name: said[name] for name in ("timeout_sec", "user", "network_mode")} | {
        "allowed_hosts": said["allowed_hosts"] or []
    }


def verifier(table: Any) -> dict[str, Any]:
    return phase(table) | {
        "env": table.env,
        "mode": table.environment_mode,
        "box": table.environment and box(table.environment),
        "collect": [one.model_dump() for one in table.collect],
    }


def harbors_verifier(said: dict[str, Any]) -> dict[str, Any]:
    return harbors_phase(said) | {
        "env": said["env"],
        "mode": said["environment_mode"],
        "box": said["environment"] and harbors_box(said["environment"]),
        "collect": said["collect"],
    }


def artifacts(table: Any) -> list[tuple[Any, ...]]:
    return [(one.source, one.destination, list(one.exclude), one.service) for one in table.artifacts]


def harbors_artifacts(said: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (one, None, [], None)
        if isinstance(one, str)
        else (one["source"], one["destination"], one["exclude"], one["service"])
        for one in said["artifacts"]
    ]


def ours(config: TaskToml) -> dict[str, Any]:
    return {
        "schema_version": config.schema_version,
        "task": config.task and config.task.model_dump(mode="json"),
        "metadata": config.metadata,
        "agent": phase(config.agent),
        "verifier": verifier(config.verifier),
        "environment": box(config.environment),
        "solution": config.solution.env,
        "strategy": config.multi_step_reward_strategy,
        "artifacts": artifacts(config),
        "steps": [
            {
                "name": step.name,
                "agent": phase(step.agent),
                "verifier": verifier(step.verifier),
                "min_reward": step.min_reward,
                "has_healthcheck": step.healthcheck is not None,
                "artifacts": artifacts(step),
            }
            for step in config.steps
        ],
    }


def harbors(said: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema_version": said["schema_version"],
        "task": said["task"],
        "metadata": said["metadata"],
        "agent": harbors_phase(said["agent"]),
        "verifier": harbors_verifier(said["verifier"]),
        "environment": harbors_box(said["environment"]),
        "solution": said["solution"]["env"],
        "strategy": said["multi_step_reward_strategy"],
        "artifacts": harbors_artifacts(said),
        "steps": [
            {
                "name": step["name"],
                "agent": harbors_phase(step["agent"]),
                "verifier": harbors_verifier(step["verifier"]),
                "min_reward": step["min_reward"],
                "has_healthcheck": step["healthcheck"] is not None,
                "artifacts": harbors_artifacts(step),
            }
            for step in said["steps"] or ()
        ],
    }


BOTH_READ = (
    "",
    'version = "1.0"',
    'version = "1.0"\nschema_version = "1.3"',
    'schema_version = "9.9"',
    "unknown = 5\n[environment]\nunknown = 6",
    '[task]\nname = "a/b"\nversion = "2"\ndescription = "d"\nkeywords = ["k"]\n'
    'authors = [{ name = "A", email = "a@b" }, { name = "B" }]',
    '[metadata]\nanything = [1, { deep = "er" }]\n[metadata.more]\nx = 1.5',
    "[agent]\ntimeout_sec = 1800",
    "[agent]\ntimeout_sec = 200000.0",
    '[agent]\ntimeout_sec = "60"',
    '[agent]\nuser = "app"\nnetwork_mode = "no-network"',
    "[agent]\nuser = 1000",
    '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org", "*.example.com", "10.0.0.0/8"]',
    '[verifier]\ntimeout_sec = 5\nuser = "root"\nenv = { A = "${B:-c}" }\nnetwork_mode = "public"',
    '[verifier]\nenvironment_mode = "separate"',
    '[verifier]\nenvironment_mode = "shared"',
    '[verifier.environment]\nmemory = "1G"\nallow_internet = false',
    '[[verifier.collect]]\ncommand = "x"\n'
    '[[verifier.collect]]\ncommand = "y"\nservice = "db"\ntimeout_sec = 5\nuser = 5',
    '[environment]\ndocker_image = "a/b:1"\nbuild_timeout_sec = 60\ncpus = 4\nmemory_mb = 8192\nstorage_mb = 20480',
    "[environment]\ngpus = 2\ngpu_types = ['H100']",
    '[environment]\ntpu = { type = "v6e", topology = "2x4" }',
    '[environment]\nmemory = "2G"\nstorage = "10G"',
    '[environment]\nmemory = " 512m "',
    '[environment]\nmemory = "0.5G"\nmemory_mb = 512',
    '[environment]\nmemory = "2000K"',
    "[environment]\nmemory = 2048",
    "[environment]\nallow_internet = true",
    "[environment]\nallow_internet = false",
    '[environment]\nallow_internet = "no"',
    '[environment]\nallow_internet = false\nnetwork_mode = "public"',
    '[environment]\nallow_internet = false\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]',
    '[environment]\nnetwork_mode = "no-network"\nallowed_hosts = []',
    '[environment]\nos = "Windows"',
    '[environment]\nworkdir = "/srv/work/"\nenv = { A = "1", B = "${HOME}" }\nskills_dir = "/skills"',
    '[environment.healthcheck]\ncommand = "true"\nretries = 5',
    '[[environment.mcp_servers]]\nname = "m"\ntransport = "stdio"\ncommand = "x"\nargs = ["y"]',
    '[[environment.mcp_servers]]\nname = "m"\ntransport = "http"\nurl = "http://x"',
    '[solution]\nenv = { A = "1" }',
    'multi_step_reward_strategy = "final"\n[[steps]]\nname = "one"',
    'multi_step_reward_strategy = "mean"',
    '[[steps]]\nname = "one"\nmin_reward = 0.5\n[steps.agent]\ntimeout_sec = 5\n[steps.verifier]\ntimeout_sec = 6\n'
    '[[steps]]\nname = "two"\nmin_reward = { reward = 1, style = 0.5 }\nartifacts = ["out"]\n'
    '[steps.verifier.environment]\ndocker_image = "a"',
    '[[steps]]\nname = "ünï code 日本"\n[steps.healthcheck]\ncommand = "x"',
    'artifacts = ["/app/out", "relative", { source = "/a", destination = "b/c", exclude = ["*.x"], service = "main" }]',
    'artifacts = [{ source = "/a", destination = "" }, { source = "/db", service = "db" }]',
    "steps = []",
)

BOTH_REFUSE = (
    "[",
    "agent = 5",
    '[agent]\ntimeout_sec = "soon"',
    "[agent]\nallowed_hosts = ['a.org']",
    '[agent]\nnetwork_mode = "public"\nallowed_hosts = ["a.org"]',
    '[agent]\nnetwork_mode = "sometimes"',
    '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1',
    '[verifier]\nenvironment_mode = "elsewhere"',
    "[[verifier.collect]]\ntimeout_sec = 5",
    '[environment]\nmemory = "2"',
    '[environment]\nmemory = "much"',
    '[environment]\nmemory = "2G"\nmemory_mb = 1024',
    '[environment]\nstorage = "1G"\nstorage_mb = 1',
    '[environment]\nmemory_mb = "many"',
    "[environment]\nmemory_mb = 1.5",
    "[environment]\ncpus = 1.5",
    '[environment]\nos = "plan9"',
    '[environment]\nallow_internet = "perhaps"',
    '[environment]\nnetwork_mode = "no-network"\nallowed_hosts = ["a.org"]',
    "[environment]\nenv = { A = 1 }",
    '[task]\nname = "nobody"',
    '[task]\nname = "a/../b"',
    '[task]\nname = "a/b"\nversion = ""',
    '[task]\nname = "a/b"\nauthors = ["A"]',
    "[[steps]]\nmin_reward = 1",
    '[[steps]]\nname = ".."',
    '[[steps]]\nname = "a/b"',
    '[[steps]]\nname = "con"',
    '[[steps]]\nname = "ends."',
    '[[steps]]\nname = "A"\n[[steps]]\nname = "a"',
    'multi_step_reward_strategy = "best"',
    'artifacts = ["../x"]',
    'artifacts = [{ source = "/a", destination = "/b" }]',
    'artifacts = [{ source = "/a", destination = "../b" }]',
    'artifacts = [{ source = "/a", destination = "manifest.json" }]',
    "artifacts = [5]",
)

OURS_REFUSES = (
    "[agent]\ntimeout_sec = 0",  # Harbor would start an agent and stop it at once
    "[agent]\ntimeout_sec = inf",
    "[environment]\nmemory_mb = 0",  # no box is that small
    "[environment]\nstorage_mb = -5",
    '[environment]\nworkdir = "app"',  # relative to what the image says
    '[metadata.openclaw_rl]\nruns_on = "moon"',  # ours alone
)

NEEDS_REFUSE = (
    '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["https://a.org/x"]',
    "[environment.healthcheck]\nretries = 5",
    '[[environment.mcp_servers]]\nname = "m"',
    '[environment]\ntpu = { type = "v6e", topology = "none" }',
)
"""Harbor finds them wrong; here they are refused before anybody looks, for what they ask."""


def test_both_read_the_same(python: Path) -> None:
    for text, said in zip(BOTH_READ, ask(python, [{"toml": text} for text in BOTH_READ]), strict=True):
        assert "refused" not in said, (text, said)
        assert ours(parse_task_toml(text, "task.toml")) == harbors(said), text


def test_both_refuse_the_same(python: Path) -> None:
    refused = (*BOTH_REFUSE, *NEEDS_REFUSE)
    for text, said in zip(refused, ask(python, [{"toml": text} for text in refused]), strict=True):
        assert "refused" in said, text
    for text in BOTH_REFUSE:
        with pytest.raises(TaskError):
            parse_task_toml(text, "task.toml")


@pytest.mark.parametrize("text", NEEDS_REFUSE)
def test_what_harbor_finds_wrong_is_never_attempted(text: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot be attempted here"):
        check_needs(read_task(write_task(tmp_path / "a", {"task.toml": text})))


def test_what_ours_alone_refuses_is_known(python: Path) -> None:
    for text, said in zip(OURS_REFUSES, ask(python, [{"toml": text} for text in OURS_REFUSES]), strict=True):
        assert "refused" not in said, text
        with pytest.raises(TaskError):
            parse_task_toml(text, "task.toml")


def our_grader(task: HarborTask, grader: BoxSource | None) -> Any:
    if grader is None:
        return None
    return {
        "config": box(grader.table),
        "folder": str(grader.folder.relative_to(task.folder)),
        "has_tests": grader.has_tests,
    }


def compare(python: Path, folders: Sequence[Path]) -> None:
    for folder, said in zip(folders, ask(python, [{"folder": str(folder)} for folder in folders]), strict=True):
        if "refused" in said:
            with pytest.raises(TaskError):
                read_task(folder)
            continue
        task = read_task(folder)
        assert ours(task.config) == harbors(said["config"]), folder
        assert [step.instruction for step in task.steps] == said["instructions"], folder
        graders = [one and {**one, "config": harbors_box(one["config"])} for one in said["graders"]]
        assert [our_grader(task, step.grader) for step in task.steps] == graders, folder


def test_the_tasks_that_we_ship_are_harbors(python: Path, tmp_path: Path) -> None:
    shipped = [sorted(written(name, tmp_path).iterdir())[::20] for name in SETS]
    folders = [*sorted(EXAMPLES.iterdir()), *(folder for one in shipped for folder in one)]
    assert len(folders) > 20
    assert not [said for said in ask(python, [{"folder": str(folder)} for folder in folders]) if "refused" in said]
    compare(python, folders)


TWO = {"task.toml": '[[steps]]\nname = "one"\n[[steps]]\nname = "two"', "steps/one/instruction.md": "1\n"}
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
FOLDERS: Mapping[str, Mapping[str, str | None]] = {
    "plain": {},
    "canary": {"instruction.md": "<!-- CANARY x -->\n# canary\n\nDo it.\n# canary stays\n"},
    "no instruction": {"instruction.md": None},
    "no tests": {"tests/test.sh": None},
    "tests for windows": {"tests/test.sh": None, "tests/test.bat": ""},
    "two steps": {**TWO, "steps/two/instruction.md": "<!-- canary -->\n2\n"},
    "a step without its folder": TWO,
    "steps with tests": {
        **TWO,
        "steps/two/instruction.md": "2\n",
        "tests/test.sh": None,
        "steps/one/tests/test.sh": "",
        "steps/two/tests/test.sh": "",
    },
    "a step without tests": {
        **TWO,
        "steps/two/instruction.md": "2\n",
        "tests/test.sh": None,
        "steps/one/tests/test.sh": "",
    },
    "separate": {"task.toml": SEPARATE},
    "separate, with a Dockerfile": {"task.toml": SEPARATE, "tests/Dockerfile": "FROM a", "tests/test.sh": None},
    "separate, with an image": {
        "task.toml": '[environment]\ndocker_image = "a"\nmemory_mb = 5\n[verifier.environment]\ndocker_image = "b"',
        "tests/test.sh": None,
    },
    "separate, with limits": {
        "task.toml": '[environment]\ndocker_image = "a"\nmemory_mb = 5\n[verifier.environment]\nmemory_mb = 6'
    },
    "a step apart": {
        "task.toml": f'{SEPARATE}[[steps]]\nname = "one"\n[steps.verifier]\nenvironment_mode = "shared"\n'
        '[[steps]]\nname = "two"\n[[steps]]\nname = "three"\n[steps.verifier.environment]\ndocker_image = "c"\n',
        "steps/one/instruction.md": "1\n",
        "steps/two/instruction.md": "2\n",
        "steps/two/tests/Dockerfile": "FROM b",
        "steps/three/instruction.md": "3\n",
    },
}


def test_directories_say_the_same(python: Path, tmp_path: Path) -> None:
    compare(python, [write_task(tmp_path / name, files) for name, files in FOLDERS.items()])


@pytest.mark.parametrize("link", ["tests/out", "solution/out"])
def test_both_refuse_links_that_lead_out(python: Path, tmp_path: Path, link: str) -> None:
    folder = write_task(tmp_path / "a", {})
    (folder / link).symlink_to("/etc")
    (said,) = ask(python, [{"folder": str(folder)}])
    assert "must stay within the task" in said["refused"]
    compare(python, [folder])


def init(python: Path, folder: Path, *options: str) -> Path:
    """A directory as `harbor init` makes it."""
    harbor = str(python.with_name("harbor"))
    command = (harbor, "init", "us/made", "--task", "--no-pytest", "--output-dir", str(folder), *options)
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return folder / "made"


SOLVE = 'echo "$(cat name.txt 2>/dev/null || echo world), hello" > greeting.txt\n'
TEST = (
    'grep -qx "world, hello" greeting.txt && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n'
)


def fill(folder: Path) -> None:
    """What an author writes into a template: nothing but the instruction, and the ends of its two scripts."""
    (folder / "instruction.md").write_text("Write the greeting into greeting.txt.\n")
    for name, text in (("solution/solve.sh", SOLVE), ("tests/test.sh", TEST)):
        with (folder / name).open("a") as script:
            script.write(f"\n{text}")


async def checked(folder: Path, cache: Path, sandbox: BubblewrapSandbox) -> Checked:
    environment = TerminalEnvironment(rollout=RolloutConfig(), sandbox=sandbox, cache=cache)
    ref = TaskRef(environment="terminal", source=str(folder), name=folder.name)
    return await check_task(environment, ref)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """With a folder for the image that Harbor's template names."""
    home = tmp_path / "cache" / "images" / "ubuntu_24.04"
    home.mkdir(parents=True)
    root = make_image(home / "root")
    grep = shutil.which("grep")
    assert grep is not None
    shutil.copy(grep, root / "bin" / "grep")
    for library in Path("/lib").glob("*-linux-gnu/libpcre*"):
        shutil.copy(library, root / "lib" / library.parent.name / library.name)
    return tmp_path / "cache"


async def test_a_task_as_harbor_makes_it_runs_unmodified(python: Path, cache: Path, tmp_path: Path) -> None:
    sandbox = sandbox_or_skip(tmp_path / "boxes")
    folder = init(python, tmp_path)
    with pytest.raises(TaskError, match=r"instruction\.md is empty"):
        read_task(folder)
    fill(folder)
    compare(python, [folder])
    one = await checked(folder, cache, sandbox)
    assert one.problem == "", one.report


async def test_a_task_of_several_steps_as_harbor_makes_it_runs_unmodified(
    python: Path, cache: Path, tmp_path: Path
) -> None:
    sandbox = sandbox_or_skip(tmp_path / "boxes")
    folder = init(python, tmp_path, "--steps", "2")
    steps = sorted((folder / "steps").iterdir())
    assert len(steps) == 2
    for step in steps:
        fill(step)
    compare(python, [folder])
    one = await checked(folder, cache, sandbox)
    assert one.problem == "", one.report


async def test_its_image_is_asked_for_where_it_is_not_here(python: Path, tmp_path: Path) -> None:
    sandbox = sandbox_or_skip(tmp_path / "boxes")
    folder = init(python, tmp_path)
    fill(folder)
    one = await checked(folder, tmp_path / "empty", sandbox)
    assert "the image ubuntu:24.04 is not here" in one.problem
    assert "mmdebstrap" in one.problem


async def test_our_plain_task_is_one(python: Path, tmp_path: Path) -> None:
    sandbox = sandbox_or_skip(tmp_path / "boxes")
    folder = write_task(tmp_path / "plain", PLAIN)
    compare(python, [folder])
    assert (await checked(folder, tmp_path / "cache", sandbox)).is_good
