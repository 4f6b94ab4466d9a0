from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from openclaw_rl.config import load_config
from openclaw_rl.model.files import EMBEDDED_NAME, resolve_model
from openclaw_rl.render import load_renderer
from openclaw_rl.render.chatml import ChatmlRenderer


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    return resolve_model(load_config().config.model).path


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded_folder: Path) -> Tokenizer:
    """The tokenizer as its library loads it, for comparison with ours."""
    return Tokenizer.from_file(str(embedded_folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def embedded(embedded_folder: Path) -> ChatmlRenderer:
    renderer = load_renderer(embedded_folder, EMBEDDED_NAME)
    assert isinstance(renderer, ChatmlRenderer)
    return renderer
