from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from openclaw_rl.errors import ModelError
from openclaw_rl.model import folder as folders
from openclaw_rl.model.folder import folder_sha256

FILES = {"model.safetensors": b"weights", "config.json": b"{}", "adapter_config.json": b'{"r": 1}'}


def folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def test_the_checksum_is_that_of_the_bytes_and_the_names(tmp_path: Path) -> None:
    expected = folder_sha256(folder(tmp_path / "a", FILES))
    assert expected == "6ba517a0d65036dadb653ad134add01f9cb73d7ccd2b2e337b3f642caeb624d0"
    assert folder_sha256(folder(tmp_path / "b", dict(reversed(FILES.items())))) == expected
    changes = [
        {"model.safetensors": b"Weights"},
        {"config.json": b"{ }"},
        {"model-2.safetensors": b""},
        {"generation_config.json": b""},
    ]
    different = [folder_sha256(folder(tmp_path / f"c{i}", FILES | change)) for i, change in enumerate(changes)]
    renamed = {("model-1.safetensors" if name == "model.safetensors" else name): FILES[name] for name in FILES}
    different.append(folder_sha256(folder(tmp_path / "d", renamed)))
    assert len({expected, *different}) == 6


def test_what_no_worker_loads_does_not_count(tmp_path: Path) -> None:
    expected = folder_sha256(folder(tmp_path / "a", FILES))
    other = folder(
        tmp_path / "b", FILES | {"README.md": b"text", "optimizer.pt": b"state", "model.safetensors.tmp": b""}
    )
    (other / "checkpoint.safetensors").mkdir()
    assert folder_sha256(other) == expected


def test_the_command_in_the_docstring_agrees(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", FILES | {"Zeta.safetensors": b"z", "notes.txt": b""})
    (line,) = (line for line in (folders.__doc__ or "").splitlines() if "sha256sum" in line and "cd FOLDER" in line)
    command = line.strip().replace("FOLDER", str(path))
    printed = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert printed.split()[0] == folder_sha256(path)


def test_a_folder_without_weights_has_none(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="safetensors"):
        folder_sha256(folder(tmp_path / "a", {"config.json": b"{}"}))
    with pytest.raises(ModelError, match=r"nowhere: No such file"):
        folder_sha256(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="Not a directory"):
        folder_sha256(tmp_path / "a" / "config.json")
