from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.errors import ModelError, RequestError
from openclaw_rl.render import load_renderer
from openclaw_rl.render.template import TemplateRenderer
from openclaw_rl.types import Message, Tool, ToolCall
from tests.unit.render.tiny import CHATML, HERMES, byte_level, sentence_piece, write_folder

SPECIAL = ("<bos>", "<turn>", "<end>")
TOKENIZER = byte_level(special=SPECIAL, tags=("<think>", "</think>"))
CONTROL = {token.content: number for number, token in TOKENIZER.get_added_tokens_decoder().items()}
BOS, END = CONTROL["<bos>"], CONTROL["<end>"]

TURNS = (
    "{{ bos_token }}{% for m in messages %}<turn>{{ m.role }}\n{{ m.content | trim }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
)
USER = Message(role="user", content=" the weather ")
ANSWER = Message(role="assistant", content="again")
TOOL = Tool(name="weather", description="Tells it.", parameters={"type": "object", "properties": {}})


@pytest.fixture
def load(tmp_path: Path) -> LoadTemplate:
    return LoadTemplate(tmp_path)


class LoadTemplate:
    """Writes folders for templates and loads their renderers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, source: str) -> TemplateRenderer:
        tokens = {"bos_token": {"content": "<bos>"}, "eos_token": "<end>"}
        folder = write_folder(self._path, TOKENIZER, source, tokenizer_config=tokens, eos_token_id=[BOS])
        renderer = load_renderer(folder, "mine")
        assert isinstance(renderer, TemplateRenderer)
        return renderer


def spelled(renderer: TemplateRenderer, ids: list[int]) -> str:
    return b"".join(map(renderer.token_bytes, ids)).decode()


def test_renders_what_the_template_says(load: LoadTemplate) -> None:
    renderer = load(TURNS)
    ids = renderer.render([Message(role="system", content="Be brief."), USER, ANSWER, USER], [], {})
    text = (
        "<bos><turn>system\nBe brief.<end>\n<turn>user\nthe weather<end>\n<turn>assistant\nagain<end>\n"
        "<turn>user\nthe weather<end>\n<turn>assistant\n"
    )
    assert ids == TOKENIZER.encode(text, add_special_tokens=False).ids
    assert renderer.stop_token_ids == (BOS, END)


def test_special_tokens_in_messages_are_plain_text(load: LoadTemplate) -> None:
    renderer = load(TURNS)
    nasty = "<end><bos><think> <turn>"
    ids = renderer.render([Message(role="user", content=nasty)], [Tool(name="f", description=nasty)], {})
    assert [token for token in ids if token in CONTROL.values()] == [
        CONTROL[token] for token in ("<bos>", "<turn>", "<end>", "<turn>", "<end>", "<turn>")
    ]
    assert spelled(renderer, ids).count(nasty) == 2


def test_sampled_answers_are_spliced_in(load: LoadTemplate) -> None:
    renderer = load(TURNS)
    letters = [token for letter in " again" for token in renderer.encode(letter)]
    prompt = renderer.render([USER], [], {})
    for sampled in ([*letters, END], [*letters, BOS], letters, []):
        ids = renderer.render([USER, ANSWER, USER, ANSWER, USER], [], {1: sampled, 3: sampled})
        assert ids[: len(prompt) + len(sampled)] == prompt + sampled
        closing = TOKENIZER.encode("<end>\n<turn>user\nthe weather<end>\n<turn>assistant\n").ids
        following = closing[1:] if sampled[-1:] == [END] else closing
        assert ids == prompt + (sampled + following) * 2
    assert renderer.bridge(prompt, letters, [USER], []) is None


def test_answers_out_of_place_are_written_from_their_text(load: LoadTemplate) -> None:
    sampled = {1: [*TOKENIZER.encode("zzz").ids, END]}
    refuses = "{% if m.role == 'assistant' and not m.content.isalpha() %}{{ 0 / 0 }}{% endif %}"
    for change in (
        ("{{ m.content | trim }}", "{{ m.content[1:] }}"),  # a part of the answer
        ("{{ m.content | trim }}", "{{ m.content * 2 }}"),  # twice
        ("prompt %}<turn>", "prompt %}<turn>the "),  # elsewhere than it was sampled
        ("{% for m in messages %}", "{% for m in messages %}" + refuses),
    ):
        renderer = load(TURNS.replace(*change))
        assert renderer.render([USER, ANSWER, USER], [], sampled) == renderer.render([USER, ANSWER, USER], [], {})


def test_old_thoughts_are_left_to_the_template(load: LoadTemplate) -> None:
    renderer = load(TURNS + "{# </think> #}")
    thought = Message(role="assistant", content="again", reasoning="hm")
    sampled = [*TOKENIZER.encode("<think>hm</think>again").ids, END]
    assert "hm" not in spelled(renderer, renderer.render([USER, thought, USER], [], {1: sampled}))
    assert "hm" in spelled(
        renderer, renderer.render([USER, thought, Message(role="tool", content="x")], [], {1: sampled})
    )


def test_tokenizers_with_a_prefix_blank_are_not_spliced(tmp_path: Path) -> None:
    source = "{% for m in messages %}{{ m.content }}</s>{% endfor %}"
    renderer = load_renderer(write_folder(tmp_path, sentence_piece(), source), "mine")
    chat = [Message(role="user", content="ab</s>"), Message(role="assistant", content="a")]
    assert renderer.render(chat, [], {1: [270]}) == renderer.render(chat, [], {})
    assert renderer.render(chat, [], {}).count(2) == 2


def test_templates_without_tools_get_them_in_hermes_form(load: LoadTemplate) -> None:
    renderer = load(TURNS)
    call = ToolCall(id="1", name="weather", arguments='{"a": "<end>"}')
    calls = Message(role="assistant", content="I look.", tool_calls=(call,))
    results = [Message(role="tool", content="sunny"), Message(role="tool", content="rainy")]
    system = Message(role="system", content="Be brief.")
    ids = renderer.render([system, system, USER, calls, *results], [TOOL], {})
    assert spelled(renderer, ids).startswith("<bos><turn>system\nBe brief.\n\n# Tools\n\n")
    assert spelled(renderer, ids).count("# Tools") == 1
    assert spelled(renderer, ids).endswith(
        '<turn>assistant\nI look.\n<tool_call>\n{"name": "weather", "arguments": {"a": "<end>"}}\n</tool_call><end>\n'
        "<turn>user\n<tool_response>\nsunny\n</tool_response>\n<tool_response>\nrainy\n</tool_response><end>\n"
        "<turn>assistant\n"
    )
    assert ids.count(END) == 5
    assert spelled(renderer, renderer.render([USER], [TOOL], {})).startswith("<bos><turn>system\n# Tools\n\n")


def test_templates_with_a_readable_form_of_calls_are_believed(load: LoadTemplate) -> None:
    xml = TURNS.replace(
        "<end>",
        "{% for c in m.tool_calls or [] %}<tool_call><function={{ c.function.name }}>"
        "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>{{ v }}</parameter>{% endfor %}"
        "</function></tool_call>{% endfor %}<end>",
        1,
    )
    assert load(xml).form.calls == "xml"
    renderer = load(HERMES.replace("<|im_start|>", "<turn>").replace("<|im_end|>", "<end>"))
    assert renderer.form.calls == "json"
    text = spelled(renderer, renderer.render([USER], [TOOL], {}))
    assert text.count("# Tools") == 1
    call = ToolCall(id="1", name="f", arguments='{"a": "\\u003cend>"}')
    ids = renderer.render([USER, Message(role="assistant", tool_calls=(call,))], [], {})
    assert '"arguments": {"a": "<end>"}' in spelled(renderer, ids)
    assert ids.count(END) == 2
    broken = ToolCall(id="1", name="f", arguments='{"a": ')
    ids = renderer.render([USER, Message(role="assistant", tool_calls=(broken,))], [], {})
    assert r'"arguments": "{\"a\": "' in spelled(renderer, ids)


def test_templates_that_refuse_system_messages_get_them_with_the_next_message(load: LoadTemplate) -> None:
    renderer = load("{% for m in messages if m.role == 'system' %}{{ raise_exception('no') }}{% endfor %}" + TURNS)
    chat = [Message(role="system", content="a"), Message(role="system", content="b"), USER]
    assert "<turn>user\na\n\nb\n\n the weather<end>" in spelled(renderer, renderer.render(chat, [], {}))


def test_a_refusal_of_the_template_is_the_clients_error(load: LoadTemplate) -> None:
    renderer = load("{% if messages | length > 2 %}{{ raise_exception('Only two!') }}{% endif %}" + TURNS)
    with pytest.raises(RequestError, match="mine cannot render these messages: Only two!") as caught:
        renderer.render([USER, USER, USER], [], {})
    assert (caught.value.status, caught.value.param) == (400, "messages")


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
RECURSIVE = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"


@pytest.mark.parametrize("endless", [ENDLESS, RECURSIVE])
def test_a_template_that_never_ends_is_stopped(load: LoadTemplate, endless: str) -> None:
    renderer = load("{% if messages[0].content == 'loop' %}" + endless + "{% endif %}" + TURNS)
    with pytest.raises(RequestError, match="did not end within"):
        renderer.render([Message(role="user", content="loop")], [], {})


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for %}", "cannot be read"),
        ("{{ undefined.attribute }}", "cannot even render a greeting"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot even render a greeting"),
        ("{{ messages.append(1) }}", "cannot even render a greeting"),
        ("{{ range(999999999) | list }}", "cannot even render a greeting"),
    ],
)
def test_a_broken_or_hostile_template_is_a_model_error(load: LoadTemplate, source: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        load(source)


def test_what_transformers_offers_to_templates(load: LoadTemplate) -> None:
    renderer = load(
        "{% for m in messages %}\n    {% generation %}{{ m | tojson }}{% endgeneration %}\n    {% break %}\n"
        "{% endfor %}\n{{ strftime_now('%Y') | length }}"
    )
    chat = [Message(role="user", content="<é>"), USER]
    assert spelled(renderer, renderer.render(chat, [], {})) == '{"role": "user", "content": "<é>"}4'


def test_a_chatml_template_over_other_tokens_is_no_chatml(load: LoadTemplate) -> None:
    load(CHATML)
