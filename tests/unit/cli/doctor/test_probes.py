"""The doctor's facts about this machine, where a test can arrange them."""

from __future__ import annotations

import gzip
import io
import os
import socket
from pathlib import Path

import pytest
from rich.console import Console

from openclaw_rl.cli.doctor import probes
from openclaw_rl.cli.doctor.checks import OpenFile
from openclaw_rl.cli.doctor.examine import examine, finding_row, summary_text
from openclaw_rl.config import ModelConfig, load_config
from openclaw_rl.views.health import CheckResult, Health
from tests.tiny import build_tiny_tokenizer

OLD_STORE = Path(__file__).parents[3] / "data" / "stores" / "schema-8.sqlite3.gz"


def model(**settings: object) -> ModelConfig:
    return ModelConfig.model_validate(settings)


def test_the_machine_has_cores_memory_and_a_disk(tmp_path: Path) -> None:
    total, available = probes.memory()
    assert 0 < available <= total
    assert 1 <= probes.num_cores() <= (os.cpu_count() or 1)
    assert probes.free_bytes(tmp_path / "not" / "there" / "yet") > 0


def test_a_taken_port_and_a_foreign_address_are_found() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert probes.why_not_listen("127.0.0.1", port) == "Address already in use"
    assert probes.why_not_listen("127.0.0.1", port) is None
    assert probes.why_not_listen("192.0.2.1", 0) == "Cannot assign requested address"
    assert probes.why_not_listen("no such host", 0) is not None


def test_what_others_can_reach_is_found(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    assert probes.open_files(data_dir) is None
    (data_dir / "run").mkdir(mode=0o700, parents=True)
    data_dir.chmod(0o700)
    for name, mode in {"key": 0o600, "run/log.jsonl": 0o640, "store.sqlite3": 0o604}.items():
        (data_dir / name).touch()
        (data_dir / name).chmod(mode)
    (data_dir / "link").symlink_to("/")
    assert probes.open_files(data_dir) == [
        OpenFile(path=data_dir / "store.sqlite3", mode=0o604, wanted=0o600),
        OpenFile(path=data_dir / "run" / "log.jsonl", mode=0o640, wanted=0o600),
    ]
    data_dir.chmod(0o750)
    assert (probes.open_files(data_dir) or [])[0] == OpenFile(path=data_dir, mode=0o750, wanted=0o700)


def test_a_model_that_is_not_here_yet(tmp_path: Path) -> None:
    facts = probes.model_facts(model(cache_dir=tmp_path))
    assert (facts.files, facts.problem) == (None, "")


def test_a_damaged_embedded_model(tmp_path: Path) -> None:
    (tmp_path / "smollm2-135m-instruct").mkdir()
    facts = probes.model_facts(model(cache_dir=tmp_path))
    assert "checksums.json is missing" in facts.problem


@pytest.mark.parametrize("name", ["no-such-model", "a/b/c", "-/-"])
def test_a_name_that_can_mean_nothing(name: str) -> None:
    assert probes.model_facts(model(name=name)).problem


def test_a_folder_without_weights(tmp_path: Path) -> None:
    build_tiny_tokenizer(tmp_path)
    assert "config.json" in probes.model_facts(model(name=str(tmp_path))).problem


def test_a_report_is_broken_if_one_thing_is() -> None:
    fine = CheckResult(name="port", state="ok", text="free")
    bad = CheckResult(name="disk", state="broken", text="full", remedy="free some")
    assert Health(checks=[fine]).to_json()["ok"] is True
    assert Health(checks=[fine, bad]).to_json() == {
        "ok": False,
        "checks": [
            {"name": "port", "state": "ok", "text": "free", "remedy": ""},
            {"name": "disk", "state": "broken", "text": "full", "remedy": "free some"},
        ],
    }
    console = Console(file=io.StringIO(), width=24)
    with console.capture() as captured:
        console.print(finding_row(bad))
    assert [line.rstrip() for line in captured.get().splitlines()] == [
        "✗ disk      full",
        "            → free some",
    ]
    assert "Broken: 1" in summary_text(Health(checks=[fine, bad])).plain
    assert "works" in summary_text(Health(checks=[fine])).plain


def test_a_store_of_an_older_release_is_remarked(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite3").write_bytes(gzip.decompress(OLD_STORE.read_bytes()))
    config = load_config(env={}, overrides=[f"store.data_dir={tmp_path}"]).config
    found = next(finding for finding in examine(config) if finding.name == "learning")
    assert (found.state, found.text) == ("remark", f"the store in {tmp_path} is of an older release")
    assert found.remedy == "start `openclaw-rl up` once to upgrade it"
