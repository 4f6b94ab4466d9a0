from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl.errors import ModelError
from openclaw_rl.render import load_renderer
from openclaw_rl.render.chatml import ChatmlRenderer
from openclaw_rl.render.packaged import PackagedRenderer
from openclaw_rl.render.template import TemplateRenderer
from openclaw_rl.types import Message
from tests.unit.render.tiny import CHATML, HERMES, byte_level, write_folder

THINKING = "{#- </think> -#}"


def test_the_embedded_model_gets_our_chatml_renderer(embedded: ChatmlRenderer) -> None:
    assert embedded.stop_token_ids == (2, 0)


@pytest.mark.parametrize(
    ("source", "model_type", "kind"),
    [
        (CHATML, "llama", ChatmlRenderer),
        (HERMES, "qwen2", ChatmlRenderer),
        (HERMES, "qwen3", ChatmlRenderer),  # the instruct models of the family do not think
        (HERMES + THINKING, "qwen3", PackagedRenderer),
        (HERMES + THINKING, "llama", TemplateRenderer),
        (HERMES.replace("# Tools", "# Functions") + THINKING, "qwen3", TemplateRenderer),
        (HERMES.replace("# Tools", "# Functions"), "qwen3", TemplateRenderer),
        (CHATML.replace("assistant\\n", "assistant\\n\\n"), "llama", TemplateRenderer),
        (CHATML.replace("<|im_end|>\\n", "<|im_end|>"), "llama", TemplateRenderer),
        (CHATML.replace("message.role", "'user'"), "llama", TemplateRenderer),
        ("{{ bos_token }}" + CHATML, "llama", TemplateRenderer),
    ],
)
def test_the_renderer_is_the_one_that_agrees_with_the_template(
    tmp_path: Path, source: str, model_type: str, kind: type
) -> None:
    folder = write_folder(
        tmp_path, byte_level(), source, model_type=model_type, tokenizer_config={"bos_token": "<|endoftext|>"}
    )
    assert type(load_renderer(folder, "mine")) is kind


def test_the_template_may_lie_in_the_tokenizer_config(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}]
    for value in (CHATML, named):
        folder = write_folder(tmp_path, byte_level(), None, tokenizer_config={"chat_template": value})
        assert isinstance(load_renderer(folder, "mine"), ChatmlRenderer)


def test_the_tokenizer_may_lie_in_another_folder(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    tokenizer = write_folder(tmp_path / "tokenizer", byte_level(), CHATML)
    assert load_renderer(weights, "mine", tokenizer).stop_token_ids[0] == 7


def test_stop_ids_come_from_everywhere(tmp_path: Path) -> None:
    tokenizer = byte_level()
    folder = write_folder(tmp_path, tokenizer, CHATML, eos_token_id=5, tokenizer_config={"eos_token": "<|endoftext|>"})
    closing = (tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>"))
    assert load_renderer(folder, "mine").stop_token_ids == (5, *closing)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [6, closing[1]]}))
    assert load_renderer(folder, "mine").stop_token_ids == (6, closing[1], closing[0])


def test_a_model_that_cannot_chat_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level(special=("<s>",), tags=()), None)
    with pytest.raises(ModelError, match="no chat template"):
        load_renderer(folder, "base-model")


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_a_broken_config_is_a_model_error(tmp_path: Path, content: str) -> None:
    folder = write_folder(tmp_path, byte_level(), CHATML)
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        load_renderer(folder, "mine")


def test_rendering_needs_neither_torch_nor_transformers(tmp_path: Path) -> None:
    """Blocked in a fresh interpreter, with the family that needs the most packages."""
    folder = write_folder(tmp_path, byte_level(), None, model_type="qwen3")
    program = (
        "import sys, pathlib\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from openclaw_rl.render import load_renderer\n"
        "print(type(load_renderer(pathlib.Path(sys.argv[1]), 'mine')).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert done.stdout == "PackagedRenderer\n"


def test_every_renderer_keeps_the_protocol(tmp_path: Path, embedded: ChatmlRenderer) -> None:
    chat = [Message(role="user", content="héllo")]
    for source, model_type in ((CHATML, "llama"), (HERMES + THINKING, "qwen3"), (HERMES + THINKING, "llama")):
        renderer = load_renderer(write_folder(tmp_path, byte_level(), source, model_type=model_type), "mine")
        ids = renderer.render(chat, [], {})
        assert renderer.decode(ids).endswith("user\nhéllo\nassistant\n")
        decoder = renderer.decoder()
        assert decoder.push(ids) + decoder.finish() == renderer.decode(ids)
        assert b"".join(map(renderer.token_bytes, renderer.encode("é<|im_end|>"))) == "é<|im_end|>".encode()
