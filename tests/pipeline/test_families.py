"""Models of six families over the real server: a chat, a correction, a step, the gate, and the new version answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.store import StoreReader
from tests.factories.families import build_family
from tests.server import OPEN_GATE, Server
from tests.tiny import CHAT_TEMPLATE, build_tiny_tokenizer

pytestmark = pytest.mark.timeout(300)

GEMMA = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' "
    "+ message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] + eos_token }}{% else %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% endif %}{% endfor %}"
)
TEMPLATES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Gemma3ForConditionalGeneration": (GEMMA, ("<start_of_turn>", "<end_of_turn>")),
    "MistralForCausalLM": (MISTRAL, ("[INST]", "[/INST]")),
    "MixtralForCausalLM": (MISTRAL, ()),
    "Qwen3MoeForCausalLM": (CHAT_TEMPLATE, ()),
    "Qwen3NextForCausalLM": (CHAT_TEMPLATE, ()),
    "Qwen3_5ForConditionalGeneration": (CHAT_TEMPLATE, ()),
}
SHORT = "Qwen3_5ForConditionalGeneration"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == SHORT else pytest.mark.hardening) for name in TEMPLATES]
)
def test_a_correction_goes_live(tmp_path: Path, name: str) -> None:
    template, control = TEMPLATES[name]
    model = build_tiny_tokenizer(build_family(name, tmp_path / "model"), template=template, control=control)
    settings = ("engine.type=embedded", "training.batch_size=1", "training.max_wait_s=0.1", "training.truncated=score")
    with Server(tmp_path / "data", f"model.name={model}", *settings, *OPEN_GATE) as server:
        reader = StoreReader.open(tmp_path / "data")
        asked = [{"role": "user", "content": "what is rain"}]
        first = server.chat(asked, max_tokens=8)
        assert first.headers["X-OpenClaw-RL-Version"] == "v0"
        said = first.json()["choices"][0]["message"]["content"]
        corrected = [*asked, {"role": "assistant", "content": said}, {"role": "user", "content": "no, shorter please"}]
        assert server.chat(corrected, max_tokens=8).status_code == 200
        server.wait_until(lambda: [one.state for one in reader.versions()] == ["live"], timeout_s=200.0)
        (version,) = reader.versions()
        assert server.chat(corrected, max_tokens=8).headers["X-OpenClaw-RL-Version"] == "v1"
        picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
        assert server.chat([{"role": "user", "content": picture}]).status_code == 400
        assert server.stop() == 0
    assert version.weights is not None
    assert version.weights.folder is not None
    adapter = json.loads((version.weights.folder / "adapter_config.json").read_text())
    assert adapter["peft_type"] == "LORA"
    log = "\n".join(path.read_text() for path in (tmp_path / "data" / "run").glob("*.jsonl"))
    assert "trained turn by turn through transformers" in log
    assert "served through transformers, turn by turn" in log
