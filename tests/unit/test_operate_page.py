"""docs/operate.md and docs/troubleshooting.md are true: the backup restores, and what they name exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from openclaw_rl.store import StoreReader
from openclaw_rl.types import Skip
from tests.pages import DOCS, named, rows, section, text
from tests.server import Server


def test_the_backup_of_a_running_server_restores_every_acknowledged_turn(tmp_path: Path) -> None:
    commands = section(DOCS / "operate.md", "Backup and restore").splitlines()
    backup, restore = (
        line.split("#")[0].split() for line in commands if line.startswith("openclaw-rl") and "/" in line
    )
    copy = tmp_path / "backups" / "today"

    def run(words: list[str], data_dir: Path) -> None:
        words = [str(copy) if word == "/backups/today" else word for word in words[1:]]
        subprocess.run([sys.executable, "-m", "openclaw_rl", *words, "--data-dir", data_dir], check=True)

    with Server(tmp_path / "data") as server:
        turns = [server.chat(f"question {number}").headers["X-OpenClaw-RL-Turn"] for number in range(3)]
        run(backup, server.data_dir)
        server.chat("after the backup")
        key = server.key
    run(restore, tmp_path / "new")
    with Server(tmp_path / "new") as restored:
        assert restored.key == key
        assert restored.chat("hello").status_code == 200
    reader = StoreReader.open(tmp_path / "new")
    kept = [f"{summary.session.id}.0" for summary in reader.sessions()]
    assert set(turns) <= set(kept)
    assert len(kept) == len(turns) + 1


def test_skips_that_are_named_exist() -> None:
    page = DOCS / "troubleshooting.md"
    first = [name for row in rows(section(page, "It does not learn")) for name in named(row[0])]
    skips = {name for name in first if " " not in name and "-" not in name}
    assert skips
    assert skips <= {skip.value for skip in Skip}


def test_every_file_of_the_data_directory_is_explained(tmp_path: Path) -> None:
    told = {name.rstrip("/") for row in rows(section(DOCS / "operate.md", "What lies where")) for name in named(row[0])}
    with Server(tmp_path / "data") as server:
        server.chat("hello")
        found = {path.name for path in server.data_dir.iterdir()} - {"output.txt"}
    suffixes = {"store.sqlite3-wal", "store.sqlite3-shm"}
    assert found - suffixes <= told
    assert "-wal" in text(DOCS / "operate.md")
