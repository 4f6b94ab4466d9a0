from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from transformers import LlamaForCausalLM

from openclaw_rl.model.embedded import EmbeddedModel, ensure_embedded
from tests.factories.checkpoints import make_llama, write_gguf, write_wheel


@pytest.fixture(scope="session")
def llama() -> LlamaForCausalLM:
    return make_llama()


@pytest.fixture(scope="session")
def tiny_gguf(llama: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path, llama)
    return path


@pytest.fixture
def tiny(llama: LlamaForCausalLM, tmp_path: Path, offer: Callable[[Path], None]) -> EmbeddedModel:
    """An embedded model whose wheel lies in `tmp_path / "index"`, the only place where pip looks."""
    offer(tmp_path / "index")
    write_gguf(tmp_path / "tiny.gguf", llama, quantise=True)
    return write_wheel(tmp_path / "index", tmp_path / "tiny.gguf")


@pytest.fixture(scope="session")
def whole(llama: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds `tiny`, as a start leaves it; to be copied."""
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        only_source(patch, place / "index")
        write_gguf(place / "tiny.gguf", llama, quantise=True)
        ensure_embedded(write_wheel(place / "index", place / "tiny.gguf"), place / "cache", Screen().console)
    return place / "cache"


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make a folder of wheels pip's only source."""
    return partial(only_source, monkeypatch)


def only_source(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(folder))


class Screen:
    """A console and what it has shown."""

    def __init__(self) -> None:
        self._file = StringIO()
        self.console = Console(file=self._file, width=200)

    @property
    def text(self) -> str:
        return self._file.getvalue()


@pytest.fixture
def screen() -> Screen:
    return Screen()
