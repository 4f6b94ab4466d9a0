"""`connect`: the real command, a running server, a home directory of its own, and a stand-in for OpenClaw's program."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from openclaw_rl.cli import app as cli
from openclaw_rl.cli.connect.check import arrival, check_first_turn, first_request
from openclaw_rl.cli.connect.clients import CLIENTS, model_name, window_warning
from openclaw_rl.cli.connect.files import FilesRestored, Settings, plan_edit, undo
from openclaw_rl.clients import Served
from openclaw_rl.config import StoreConfig
from openclaw_rl.store import StoreReader
from openclaw_rl.types import split_turn_id
from tests.server import Server
from tests.unit.cli.gateway import FakeGateway

CAPS = pytest.CaptureFixture[str]
MODEL = "smollm2-135m-instruct"
WINDOW = 131072
TOML = '# mine\nmodel = "gpt-5"\napproval_policy = "never"\n\n[model_providers.other]\nname = "x"'
"""A file without a newline at its end, with a key that ours replaces, and a table beside ours."""

FAKE_OPENCLAW = f"""#!{sys.executable}
import json, os, re, sys
from pathlib import Path
home = Path(os.environ["HOME"], ".openclaw"); home.mkdir(exist_ok=True)
file = home / "openclaw.json"
with (home / "calls").open("a") as log: log.write(json.dumps(sys.argv[1:]) + "\\n")
tree = json.loads(file.read_text()) if file.exists() else {{}}
_, verb, path, *rest = sys.argv[1:]
if verb == "set":
    assert path == "--batch-file"
    batch = Path(rest.pop(0))
    seen = [one.stat().st_mode & 0o77 for one in (batch.parent, batch)]
    with (home / "modes").open("a") as log: log.write(" ".join(map(str, seen)) + "\\n")
    ((path, value),) = [entry.values() for entry in json.loads(batch.read_text())]
*names, last = path.split(".")
node = tree
for name in names: node = node.setdefault(name, {{}})
if verb == "get":
    if last not in node: sys.exit(print(json.dumps({{"error": "Config path is valid but unset: " + path}})) or 1)
    print(re.sub('"apiKey": "[^"]*"', '"apiKey": "__REDACTED__"', json.dumps(node[last])))
    sys.exit(0)
if verb == "set":
    if path.endswith("primary") and value.split("/")[0] not in tree.get("models", {{}}).get("providers", {{}}):
        if value.startswith("rl/"): sys.exit("unknown model")
    if last in node and isinstance(node[last], (dict, list)) and "--replace" not in rest: sys.exit("protected")
    node[last] = value
else:
    del node[last]
new = json.dumps(tree, indent=2)
if file.exists() and len(new) < len(file.read_text()) / 2: sys.exit("Config write rejected: size-drop")
file.write_text(new)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("connect") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose model has the embedded one's window."""
    with Server(tmp_path_factory.mktemp("small") / "data", "engine.context_window=8192") as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


@pytest.fixture
def openclaw(home: Path) -> Path:
    """The stand-in on the PATH; the file that it keeps."""
    program = home.parent / "bin" / "openclaw"
    program.parent.mkdir()
    program.write_text(FAKE_OPENCLAW)
    program.chmod(0o755)
    file = home / ".openclaw" / "openclaw.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"meta": "m" * 400}))
    return file


class Command:
    """`openclaw-rl connect` on the server's directory."""

    def __init__(self, server: Server, capsys: CAPS) -> None:
        self.server, self.capsys = server, capsys
        self.out = self.err = ""

    def __call__(self, *words: str, status: int = 0) -> Command:
        with pytest.raises(SystemExit) as ended:
            cli.main(["connect", *words, "--data-dir", str(self.server.data_dir)])
        self.out, self.err = self.capsys.readouterr()
        assert (ended.value.code or 0) == status, self.err
        return self

    def json(self, *words: str, status: int = 0) -> Any:
        return json.loads(self(*words, "--yes", "--json", status=status).out)


@pytest.fixture
def connect(server: Server, home: Path, capsys: CAPS) -> Iterator[Command]:
    yield Command(server, capsys)
    for record in (server.data_dir / "connections").glob("*.json"):
        record.unlink()


def opens(server: Server, key: str) -> bool:
    return httpx.get(f"{server.url}/v1/models", headers={"x-api-key": key}).status_code == 200


def keys_of(server: Server, label: str) -> list[bool]:
    """Whether each key of a client is still valid."""
    keys = StoreReader.open(server.data_dir).keys()
    return [key.revoked_at is None for key in keys if key.label == label]


def read_key(home: Path) -> str:
    settings = tomllib.loads((home / ".codex" / "config.toml").read_text())
    return str(settings["model_providers"]["rl"]["http_headers"]["x-api-key"])


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_codex_keeps_the_rest_of_its_file_to_the_byte(connect: Command, server: Server, home: Path) -> None:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(TOML)
    file.chmod(0o644)
    report = connect.json("codex")
    settings = tomllib.loads(file.read_text())
    assert (settings["model"], settings["model_provider"]) == (MODEL, "rl")
    assert settings["model_context_window"] == WINDOW
    assert settings["approval_policy"] == "never"
    provider = settings["model_providers"]["rl"]
    assert (provider["base_url"], provider["wire_api"]) == (f"{server.url}/v1", "responses")
    assert opens(server, provider["http_headers"]["x-api-key"])
    assert settings["model_providers"]["other"] == {"name": "x"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert report["files"] == [str(file)]

    connect("codex", "--remove", "--yes")
    assert file.read_bytes() == TOML.encode()
    assert file.stat().st_mode & 0o777 == 0o644
    assert not opens(server, provider["http_headers"]["x-api-key"])
    assert keys_of(server, "codex") == [False]
    assert "not connected" in connect("codex", "--remove", "--yes", status=1).err


def test_claude_code_gets_its_environment_without_v1(connect: Command, server: Server, home: Path) -> None:
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    before = '{\n    "permissions": {"allow": ["Bash(ls)"]},\n    "env": {"LANG": "C"}\n}'
    file.write_text(before)
    connect("claude-code", "--yes")
    settings = read(file)
    assert settings["permissions"] == {"allow": ["Bash(ls)"]}
    env = settings["env"]
    assert (env["LANG"], env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_MODEL"]) == ("C", server.url, MODEL)
    assert env["ANTHROPIC_SMALL_FAST_MODEL"] == env["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == MODEL
    assert env["CLAUDE_CODE_GATEWAY_HINT_HEADERS"] == "1"
    assert opens(server, env["ANTHROPIC_AUTH_TOKEN"])
    connect("claude-code", "--remove", "--yes")
    assert file.read_text() == before


def test_opencode_and_pi_get_a_provider_and_choose_it(connect: Command, server: Server, home: Path) -> None:
    connect("opencode", "--yes")
    settings = read(home / ".config" / "opencode" / "opencode.json")
    provider = settings["provider"]["rl"]
    assert (provider["npm"], provider["options"]["baseURL"]) == ("@ai-sdk/openai-compatible", f"{server.url}/v1")
    assert provider["models"][MODEL]["limit"]["context"] == WINDOW
    assert settings["model"] == settings["small_model"] == f"rl/{MODEL}"
    assert opens(server, provider["options"]["apiKey"])

    connect("pi", "--yes")
    provider = read(home / ".pi" / "agent" / "models.json")["providers"]["rl"]
    assert (provider["baseUrl"], provider["api"]) == (f"{server.url}/v1", "openai-completions")
    assert provider["models"][0]["contextWindow"] == WINDOW
    assert read(home / ".pi" / "agent" / "settings.json") == {"defaultProvider": "rl", "defaultModel": MODEL}
    for name in ("opencode", "pi"):
        connect(name, "--remove", "--yes")
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_aider_gets_lines_in_its_yaml(connect: Command, server: Server, home: Path) -> None:
    file = home / ".aider.conf.yml"
    before = "# mine\nmodel: gpt-4\ndark-mode: true\n"
    file.write_text(before)
    connect("aider", "--yes")
    settings = yaml.safe_load(file.read_text())
    assert settings["openai-api-base"] == f"{server.url}/v1"
    assert (settings["model"], settings["dark-mode"]) == (f"openai/{MODEL}", True)
    assert opens(server, settings["openai-api-key"])
    connect("aider", "--remove", "--yes")
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("client", "variable", "file"),
    [
        ("codex", "CODEX_HOME", "config.toml"),
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
        ("pi", "PI_CODING_AGENT_DIR", "models.json"),
    ],
)
def test_files_are_found_where_people_moved_them(
    connect: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str, variable: str, file: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "moved"))
    connect(client, "--yes")
    assert (tmp_path / "moved" / file).is_file()
    assert not any(home.rglob("*"))


def test_a_folder_that_was_moved_since_is_undone_in_both_places(
    connect: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect("codex", "--yes")
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "moved"))
    connect("codex", "--yes")
    connect("codex", "--remove", "--yes")
    assert not list(home.rglob("*.toml"))
    assert not list((tmp_path / "moved").iterdir())


def test_what_cannot_be_written_leaves_everything_as_it_was(connect: Command, server: Server, home: Path) -> None:
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True)
    (folder / "settings.json").symlink_to("/proc/nowhere/settings.json")
    valid = keys_of(server, "pi").count(True)
    assert "cannot be written" in connect("pi", "--yes", status=2).err
    assert not (folder / "models.json").exists()
    assert keys_of(server, "pi")[-1] is False
    assert keys_of(server, "pi").count(True) == valid
    assert "not connected" in connect("pi", "--remove", "--yes", status=1).err


def test_a_link_stays_a_link(connect: Command, home: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}\n")
    link = home / ".claude" / "settings.json"
    link.parent.mkdir()
    link.symlink_to(real)
    connect("claude-code", "--yes")
    assert link.is_symlink()
    assert "ANTHROPIC_MODEL" in read(real)["env"]
    connect("claude-code", "--remove", "--yes")
    assert link.is_symlink()
    assert real.read_text() == "{}\n"


def test_what_somebody_changed_since_is_left_alone_with_words(connect: Command, home: Path) -> None:
    codex = home / ".codex" / "config.toml"
    codex.parent.mkdir()
    codex.write_text(TOML)
    connect("codex", "--yes")
    text = codex.read_text().replace(f'model = "{MODEL}"', 'model = "their-own"')
    codex.write_text(text + '\n[projects."/x"]\ntrust_level = "trusted"\n')
    assert connect.json("codex", "--remove")["left"] == [f"model in {codex}, changed since"]
    settings = tomllib.loads(codex.read_text())
    assert settings["model"] == "their-own"
    assert settings["projects"] == {"/x": {"trust_level": "trusted"}}
    assert settings["model_providers"] == {"other": {"name": "x"}}
    assert "model_provider" not in settings
    assert settings["approval_policy"] == "never"

    claude = home / ".claude" / "settings.json"
    connect("claude-code", "--yes")
    changed = read(claude)
    changed["env"] |= {"ANTHROPIC_MODEL": "other", "LANG": "C"}
    claude.write_text(json.dumps(changed))
    assert connect.json("claude-code", "--remove")["left"] == [f"env.ANTHROPIC_MODEL in {claude}, changed since"]
    assert read(claude) == {"env": {"ANTHROPIC_MODEL": "other", "LANG": "C"}}


@pytest.mark.parametrize(
    ("client", "file", "text"),
    [
        ("claude-code", ".claude/settings.json", '{\n  // mine\n  "env": {}\n}'),
        ("claude-code", ".claude/settings.json", '{"env": "none"}'),
        ("opencode", ".config/opencode/opencode.jsonc", '{"model": "x", /* mine */ "theme": "y"}'),
        ("codex", ".codex/config.toml", '[model_providers.rl]\nname = "mine"\n'),
        ("codex", ".codex/config.toml", "model = [\n"),
        ("aider", ".aider.conf.yml", "- a list\n"),
    ],
)
def test_a_file_that_would_be_harmed_is_refused_untouched(
    connect: Command, server: Server, home: Path, client: str, file: str, text: str
) -> None:
    path = home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    num_keys = len(keys_of(server, client))
    assert "--print" in connect(client, "--yes", status=2).err or text == '{"env": "none"}'
    assert path.read_text() == text
    assert len(keys_of(server, client)) == num_keys
    assert "not connected" in connect(client, "--remove", "--yes", status=1).err


@pytest.mark.parametrize("client", [name for name, client in CLIENTS.items() if client.files is not None])
def test_a_file_with_the_key_of_another_connection_is_refused(
    connect: Command, server: Server, home: Path, client: str
) -> None:
    connect(client, "--yes")
    texts = {path: path.read_text() for path in home.rglob("*") if path.is_file()}
    num_keys = len(keys_of(server, client))
    record = server.data_dir / "connections" / f"{client}.json"
    kept = record.read_bytes()
    record.unlink()  # as another data directory sees it
    said = connect(client, "--yes", status=2).err.replace("\n", " ")
    assert f"`openclaw-rl connect {client} --remove --data-dir " in said
    assert {path: path.read_text() for path in texts} == texts
    assert len(keys_of(server, client)) == num_keys
    record.write_bytes(kept)
    connect(client, "--remove", "--yes")
    assert not any(path.exists() for path in texts)


def test_no_key_is_shown(connect: Command, home: Path) -> None:
    connect("claude-code", "--yes")
    file = home / ".claude" / "settings.json"
    key = read(file)["env"]["ANTHROPIC_AUTH_TOKEN"]
    file.write_text(json.dumps({**read(file), "theirs": "ocrl-AbC_d-9"}, indent=2))
    said = connect("claude-code", "--remove", "--yes").err
    assert said.count("ocrl-…") == 2
    assert key not in said
    assert "AbC_d" not in said


def test_a_file_that_is_read_only_is_left_alone(connect: Command, server: Server, home: Path) -> None:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(TOML)
    file.chmod(0o444)
    num_keys = len(keys_of(server, "codex"))
    assert "read-only" in connect("codex", "--yes", status=2).err
    assert (file.read_text(), file.stat().st_mode & 0o777) == (TOML, 0o444)
    assert len(keys_of(server, "codex")) == num_keys
    file.chmod(0o644)
    connect("codex", "--yes")
    file.chmod(0o400)
    text = file.read_text()
    assert "read-only" in connect("codex", "--remove", "--yes", status=2).err
    assert file.read_text() == text
    assert opens(server, read_key(home))
    file.chmod(0o600)
    connect("codex", "--remove", "--yes")
    assert file.read_text() == TOML


def test_half_a_character_in_a_file_stays(connect: Command, home: Path) -> None:
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    before = '{"é": "\\ud800 \\ud83d\\ude00"}'
    file.write_text(before)
    connect("claude-code", "--yes")
    assert read(file)["é"] == "\ud800 😀"
    file.write_text(file.read_text().replace("}\n", "}\n "))
    connect("claude-code", "--remove", "--yes")
    assert read(file) == {"é": "\ud800 😀"}


@pytest.mark.parametrize("how", ["--yes", "--print"])
def test_a_connection_that_cannot_be_recorded_leaves_no_key(
    connect: Command, server: Server, home: Path, how: str
) -> None:
    folder = server.data_dir / "connections"
    if folder.exists():
        folder.rmdir()
    folder.symlink_to("nowhere")
    try:
        before = keys_of(server, "codex")
        assert "cannot be written" in connect("codex", how, status=2).err
        assert keys_of(server, "codex") == [*before, False]
        assert list(home.rglob("*.toml")) == []
    finally:
        folder.unlink()


def test_connecting_again_changes_nothing_more_and_keeps_the_key(connect: Command, server: Server, home: Path) -> None:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(TOML)
    first = connect.json("codex")
    text = file.read_text()
    assert connect.json("codex")["key_id"] == first["key_id"]
    assert file.read_text() == text
    connect("codex", "--remove", "--yes")
    assert file.read_text() == TOML


def test_nothing_happens_without_a_yes(
    connect: Command, server: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_keys = len(keys_of(server, "codex"))
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        connect("codex", status=1)
    assert "+model_provider" in connect.err
    assert "ocrl-…" in connect.err
    assert list(home.iterdir()) == []
    assert len(keys_of(server, "codex")) == num_keys


def test_settings_are_printed_and_nothing_is_written(connect: Command, server: Server, home: Path) -> None:
    codex = tomllib.loads(connect("codex", "--print").out)
    assert opens(server, codex["model_providers"]["rl"]["http_headers"]["x-api-key"])
    assert "export ANTHROPIC_AUTH_TOKEN=ocrl-" in connect("claude-code", "--print").out
    pi = connect("pi", "--print").out.split("# ")
    assert [list(json.loads(part.partition("\n")[2])) for part in pi[1:]] == [
        ["providers"],
        ["defaultProvider", "defaultModel"],
    ]
    litellm = yaml.safe_load(connect("litellm").out)["model_list"][0]["litellm_params"]
    assert (litellm["model"], litellm["api_base"]) == (f"openai/{MODEL}", f"{server.url}/v1")
    env = dict(line.removeprefix("export ").split("=", 1) for line in connect("env").out.splitlines())
    assert (env["OPENAI_BASE_URL"], env["ANTHROPIC_BASE_URL"]) == (f"{server.url}/v1", server.url)
    assert env["OPENAI_API_KEY"] == env["ANTHROPIC_AUTH_TOKEN"]
    assert connect("env").out.count(env["OPENAI_API_KEY"]) == 2, "a second shell gets the same key"
    connect("env", "--remove", "--yes")
    assert not opens(server, env["OPENAI_API_KEY"])
    assert not any(home.iterdir())


def test_records_are_private(connect: Command, server: Server) -> None:
    connect("env")
    folder = server.data_dir / "connections"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "env.json").stat().st_mode & 0o777 == 0o600


def test_openclaw_is_told_through_its_own_program(connect: Command, server: Server, openclaw: Path) -> None:
    own = {"agents": {"defaults": {"model": {"primary": "anthropic/x", "fallbacks": ["y"]}}}, "other": "z" * 2000}
    openclaw.write_text(json.dumps(own, indent=2))
    report = connect.json("openclaw")
    settings = read(openclaw)
    provider = settings["models"]["providers"]["rl"]
    assert (provider["baseUrl"], provider["api"]) == (f"{server.url}/v1", "openai-completions")
    (model,) = provider["models"]
    assert (model["id"], model["contextWindow"]) == (MODEL, WINDOW)
    assert model["compat"] == {"sendSessionAffinityHeaders": True, "supportsPromptCacheKey": True}
    assert settings["agents"]["defaults"]["model"] == {"primary": f"rl/{MODEL}", "fallbacks": ["y"]}
    assert opens(server, provider["apiKey"])
    assert provider["apiKey"] not in connect.err
    assert report["first_turn"]["client"] == "openclaw"

    connect("openclaw", "--yes")
    connect("openclaw", "--remove", "--yes")
    assert read(openclaw) == {**own, "models": {"providers": {}}}
    assert not opens(server, provider["apiKey"])


def test_no_argument_of_openclaw_holds_the_key(connect: Command, openclaw: Path) -> None:
    connect("openclaw", "--yes")
    key = read(openclaw)["models"]["providers"]["rl"]["apiKey"]
    connect("openclaw", "--yes")
    connect("openclaw", "--remove", "--yes")
    calls = (openclaw.parent / "calls").read_text()
    assert key not in calls, "everybody on the machine may read the arguments of a process"
    assert set((openclaw.parent / "modes").read_text().split()) == {"0"}, "the file is its owner's alone"
    files = [Path(call[3]) for call in map(json.loads, calls.splitlines()) if call[1] == "set"]
    assert files
    assert not any(file.exists() for file in files)


def test_openclaw_s_small_file_is_emptied_in_steps(connect: Command, openclaw: Path) -> None:
    connect("openclaw", "--yes")
    connect("openclaw", "--remove", "--yes")
    assert read(openclaw) == {"meta": "m" * 400, "models": {"providers": {}}, "agents": {"defaults": {}}}
    calls = [json.loads(line)[1:3] for line in (openclaw.parent / "calls").read_text().splitlines()]
    tried = ["unset", "models.providers.rl"]
    assert [call[:1] if call[0] == "set" else call for call in calls[-4:]] == [["get", tried[1]], tried, ["set"], tried]


def test_openclaw_s_one_word_model_is_restored(connect: Command, openclaw: Path) -> None:
    openclaw.write_text(json.dumps({"agents": {"defaults": {"model": "anthropic/x"}}, "other": "z" * 2000}))
    connect("openclaw", "--yes")
    assert read(openclaw)["agents"]["defaults"]["model"] == f"rl/{MODEL}"
    connect("openclaw", "--remove", "--yes")
    assert read(openclaw)["agents"]["defaults"]["model"] == "anthropic/x"


def test_openclaw_s_other_choices_are_respected(connect: Command, server: Server, openclaw: Path) -> None:
    connect("openclaw", "--yes")
    settings = read(openclaw)
    settings["agents"]["defaults"]["model"]["primary"] = "anthropic/x"
    openclaw.write_text(json.dumps(settings))
    assert connect.json("openclaw", "--remove")["left"] == ["agents.defaults.model.primary of OpenClaw, changed since"]
    assert read(openclaw)["agents"]["defaults"]["model"] == {"primary": "anthropic/x"}

    openclaw.write_text(json.dumps({"models": {"providers": {"rl": {"baseUrl": "http://elsewhere"}}}}))
    num_keys = len(keys_of(server, "openclaw"))
    assert "already" in connect("openclaw", "--yes", status=2).err
    assert read(openclaw) == {"models": {"providers": {"rl": {"baseUrl": "http://elsewhere"}}}}
    assert len(keys_of(server, "openclaw")) == num_keys


def test_a_refusal_of_openclaw_leaves_nothing_behind(connect: Command, server: Server, openclaw: Path) -> None:
    own = {"agents": {"defaults": {"model": {"primary": {"nested": "x" * 3000}}}}}
    openclaw.write_text(json.dumps(own))
    assert "protected" in connect("openclaw", "--yes", status=1).err
    assert read(openclaw) == {**own, "models": {"providers": {}}}
    assert not any(keys_of(server, "openclaw"))
    assert not (server.data_dir / "connections" / "openclaw.json").exists()


def test_without_openclaw_the_commands_are_printed(connect: Command, server: Server, home: Path) -> None:
    connect("openclaw")
    assert "not on the PATH" in connect.err
    first, changes, _, *commands = connect.out.splitlines()
    assert first == "(umask 077; cat > openclaw-rl.json) <<'END'"
    provider, model = json.loads(changes)
    assert (provider["path"], provider["value"]["baseUrl"]) == ("models.providers.rl", f"{server.url}/v1")
    assert model == {"path": "agents.defaults.model.primary", "value": f"rl/{MODEL}"}
    assert commands == ["openclaw config set --batch-file openclaw-rl.json", "rm openclaw-rl.json"]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_first_turn_of_every_client_arrives_as_main_and_is_not_learned_from(
    connect: Command, server: Server, name: str
) -> None:
    found = connect.json(name, "--print")["first_turn"]
    assert found["ok"], found["text"]
    session, index = split_turn_id(found["turn"])
    reader = StoreReader.open(server.data_dir)
    turn, kept = reader.turn(session, index), reader.session(session)
    assert turn is not None
    assert kept is not None
    assert (turn.kind, index, kept.user, kept.opted_out) == ("main", 0, "local", True)
    assert turn.dialect == CLIENTS[name].dialect


def test_a_turn_that_arrives_wrongly_is_told(server: Server) -> None:
    store = StoreConfig(data_dir=server.data_dir)
    request = first_request(CLIENTS["aider"], MODEL, "told")
    headers = {**server.headers, "User-Agent": "OpenAI/Python x", "X-No-Train": "session"}

    def ask(**extra: str) -> str:
        answer = httpx.post(server.url + request.path, json={**request.body}, headers={**headers, **extra}, timeout=30)
        return answer.headers["X-OpenClaw-RL-Turn"]

    side = arrival(store, CLIENTS["aider"], ask(**{"X-Turn-Type": "side", "X-Session-Id": "told-1"}))
    assert (side.ok, side.kind) == (False, "side")
    main = ask(**{"X-Session-Id": "told-2"})
    assert arrival(store, CLIENTS["aider"], main).ok
    assert not arrival(store, CLIENTS["opencode"], main).ok
    assert "not in the store" in arrival(store, CLIENTS["aider"], "nowhere.0").text


async def test_a_server_that_does_not_answer_as_hoped_is_told(tmp_path: Path) -> None:
    store = StoreConfig(data_dir=tmp_path)
    async with FakeGateway(answers=[(429, "one at a time")]).running() as fake:
        served = Served(url=fake.url, model=MODEL, window=WINDOW, key="ocrl-test")
        unknown = await check_first_turn(store, CLIENTS["codex"], served)
        assert (unknown.ok, unknown.turn) == (False, None)
        assert "Responses API that codex needs (/v1/responses is not there)" in unknown.text
        refused = await check_first_turn(store, CLIENTS["opencode"], served)
        assert (refused.ok, refused.text) == (False, "a first turn was refused: one at a time")
        assert fake.wishes == ["session"]
    gone = await check_first_turn(store, CLIENTS["opencode"], served)
    assert (gone.ok, "no server answers" in gone.text) == (False, True)


def test_trying_runs_the_client_itself(connect: Command, server: Server, home: Path) -> None:
    program = home.parent / "bin" / "claude"
    program.parent.mkdir()
    ask = f"""#!{sys.executable}
import json, os, sys, urllib.request
env = json.load(open(os.path.expanduser("~/.claude/settings.json")))["env"]
body = {{"model": env["ANTHROPIC_MODEL"], "max_tokens": 9, "messages": [{{"role": "user", "content": sys.argv[2]}}]}}
headers = {{"Authorization": "Bearer " + env["ANTHROPIC_AUTH_TOKEN"], "User-Agent": "claude-cli/9"}}
call = urllib.request.Request(env["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
urllib.request.urlopen(call).read()
"""
    program.write_text(ask)
    program.chmod(0o755)
    found = connect.json("claude-code", "--try")["first_turn"]
    assert (found["ok"], found["client"]) == (True, "claude-cli/9")
    program.write_text("#!/bin/sh\necho it cannot log in >&2; exit 3\n")
    assert "exit status 3" in connect.json("claude-code", "--try", status=1)["first_turn"]["text"]
    assert "cannot log in" in connect.err or "cannot log in" in connect.out
    program.unlink()
    assert "not on the PATH" in connect.json("claude-code", "--try", status=1)["first_turn"]["text"]


def test_a_window_that_is_too_small_is_told_beforehand(small: Server, home: Path, capsys: CAPS) -> None:
    connect = Command(small, capsys)
    report = connect.json("openclaw", "--print")
    assert report["context_window"] == 8192
    assert "its first request will be refused" in report["warning"]
    assert "model.name=Qwen/Qwen3-4B-Instruct-2507" in report["warning"]
    assert connect.json("pi", "--print")["warning"] is None
    assert "needs a window of 32768" in connect("codex", "--print").err


def test_removing_needs_no_server(small: Server, home: Path, capsys: CAPS) -> None:
    connect = Command(small, capsys)
    connect("aider", "--yes")
    assert (home / ".aider.conf.yml").exists()
    assert small.stop() == 0
    connect("aider", "--remove", "--yes")
    assert not (home / ".aider.conf.yml").exists()
    assert keys_of(small, "aider") == [False]


def test_the_doctor_warns_of_clients_that_will_not_fit(
    connect: Command, server: Server, model: Path, capsys: CAPS
) -> None:
    connect("codex", "--yes")
    connect("aider", "--yes")
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--json", "--data-dir", str(server.data_dir), f"model.cache_dir={model.parent}"])
    (window,) = (check for check in json.loads(capsys.readouterr().out)["checks"] if check["name"] == "window")
    assert (window["state"], window["text"]) == ("remark", "8192 tokens: too short for codex (needs 32768)")


def test_a_key_that_was_revoked_by_hand_does_not_stand_in_the_way(
    connect: Command, server: Server, home: Path, capsys: CAPS
) -> None:
    revoked = connect.json("codex")["key_id"]
    with pytest.raises(SystemExit):
        cli.main(["keys", "revoke", revoked, "--data-dir", str(server.data_dir)])
    assert connect.json("codex")["key_id"] != revoked, "connecting again makes another"
    assert opens(server, read_key(home))
    with pytest.raises(SystemExit):
        cli.main(["keys", "revoke", connect.json("codex")["key_id"], "--data-dir", str(server.data_dir)])
    connect("codex", "--remove", "--yes")
    assert not (home / ".codex" / "config.toml").exists()


def test_how_much_each_client_needs() -> None:
    needs = {name: client.needs_window for name, client in CLIENTS.items()}
    assert needs == {
        **dict.fromkeys(("openclaw", "codex", "claude-code"), 32768),
        "opencode": 16384,
        **dict.fromkeys(("pi", "aider"), 4096),
        **dict.fromkeys(("litellm", "env"), 0),
    }
    assert window_warning(CLIENTS["openclaw"], 32768) is None
    assert "soon be full" in str(window_warning(CLIENTS["openclaw"], 32767))
    assert "refused" in str(window_warning(CLIENTS["openclaw"], 15_100))


def test_a_folder_goes_by_its_last_name() -> None:
    assert model_name("/srv/models/my-llama") == "my-llama"
    assert model_name("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"


def test_typos_and_a_server_that_is_not_there_are_told(connect: Command, tmp_path: Path, capsys: CAPS) -> None:
    assert "did you mean codex?" in connect("codx", status=2).err
    with pytest.raises(SystemExit) as ended:
        cli.main(["connect", "codex", "--data-dir", str(tmp_path / "none")])
    assert ended.value.code == 1
    assert "no server is running" in capsys.readouterr().err


def test_what_is_empty_without_us_goes() -> None:
    settings = Settings(path=Path("/x.json"), form="json", values={("env", "A"): "1", ("env", "B"): "2"})
    new = plan_edit(settings, "x", None, None)
    assert undo(new, '{"env": {"A": "1"}}') == FilesRestored(text=None)
    there = plan_edit(settings, "x", '{"z": 1}', None)
    assert undo(there, '{"z": 1, "env": {"A": "1"}}') == FilesRestored(text='{\n  "z": 1\n}')
    assert undo(there, '{"z": 1, "env": {"A": "1", "C": "3"}}').text == '{\n  "z": 1,\n  "env": {\n    "C": "3"\n  }\n}'
    assert undo(there, "{ broken").text == "{ broken"
