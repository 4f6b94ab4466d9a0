from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.render import load_renderer
from openclaw_rl.render.packaged import PackagedRenderer
from openclaw_rl.types import Message, ReasoningDelta, TextDelta, Tool, ToolCall
from tests.unit.render.tiny import HERMES, byte_level, write_folder

TOKENIZER = byte_level()
CONTROL = {token.content: number for number, token in TOKENIZER.get_added_tokens_decoder().items()}
IM_START, IM_END, THINK, THINK_END = (CONTROL[t] for t in ("<|im_start|>", "<|im_end|>", "<think>", "</think>"))
TOOL = Tool(name="weather", description="Tells it.", parameters={"type": "object", "properties": {}})
USER = Message(role="user", content="the weather")
CALLS = Message(
    role="assistant",
    reasoning="again",
    tool_calls=(ToolCall(id="1", name="weather", arguments="{}"), ToolCall(id="2", name="weather", arguments="{}")),
)
RESULTS = [Message(role="tool", content="sunny", tool_call_id="1"), Message(role="tool", content="", tool_call_id="2")]


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> PackagedRenderer:
    folder = write_folder(
        tmp_path_factory.mktemp("qwen3"),
        TOKENIZER,
        HERMES + "{#- </think> -#}",
        model_type="qwen3",
        eos_token_id=IM_END,
    )
    renderer = load_renderer(folder, "mine")
    assert isinstance(renderer, PackagedRenderer)
    return renderer


@pytest.fixture(scope="module")
def answer_ids(qwen3: PackagedRenderer) -> list[int]:
    """A thought and a word, letter by letter as no encoding would write them."""
    letters = [token for letter in "again" for token in qwen3.encode(letter)]
    assert letters != qwen3.encode("again")
    return [THINK, *letters, THINK_END, *letters, IM_END]


def spelled(renderer: PackagedRenderer, ids: list[int]) -> str:
    return b"".join(map(renderer.token_bytes, ids)).decode()


def test_bridges_a_tool_cycle_exactly(qwen3: PackagedRenderer, answer_ids: list[int]) -> None:
    prompt = qwen3.render([USER], [TOOL], {})
    for completion in (answer_ids, answer_ids[:-1]):
        bridged = qwen3.bridge(prompt, completion, RESULTS, [TOOL])
        assert bridged is not None
        assert bridged[: len(prompt) + len(completion)] == prompt + completion
        added = bridged[len(prompt) + len(completion) :]
        assert spelled(qwen3, added).removeprefix("<|im_end|>") == (
            "\n<|im_start|>user\n<tool_response>\nsunny\n</tool_response>\n<tool_response>\n\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        assert bridged == qwen3.render([USER, CALLS, *RESULTS], [TOOL], {1: completion})


def test_does_not_bridge_to_what_the_user_says_next(qwen3: PackagedRenderer, answer_ids: list[int]) -> None:
    assert qwen3.bridge(qwen3.render([USER], [], {}), answer_ids, [USER], []) is None


def test_does_not_bridge_what_the_package_would_cut_off(qwen3: PackagedRenderer, answer_ids: list[int]) -> None:
    prompt = qwen3.render([USER], [TOOL], {})
    assert qwen3.bridge(prompt, [*answer_ids, *answer_ids[1:3]], RESULTS, [TOOL]) is None


def test_an_answer_to_nothing_is_written_from_its_text(qwen3: PackagedRenderer, answer_ids: list[int]) -> None:
    chat = [CALLS, *RESULTS]
    assert qwen3.render(chat, [TOOL], {0: answer_ids}) == qwen3.render(chat, [TOOL], {})


def test_splices_the_running_tool_cycle_and_writes_older_answers_anew(
    qwen3: PackagedRenderer, answer_ids: list[int]
) -> None:
    chat = [USER, Message(role="assistant", content="again", reasoning="gone"), USER, CALLS, *RESULTS, CALLS, *RESULTS]
    ids = qwen3.render(chat, [TOOL], {1: answer_ids, 3: answer_ids, 6: answer_ids[:-1]})
    prompt = qwen3.render(chat[:3], [TOOL], {})
    assert "gone" not in spelled(qwen3, ids)
    assert ids[: len(prompt) + len(answer_ids)] == prompt + answer_ids
    second = qwen3.bridge(prompt, answer_ids, RESULTS, [TOOL])
    assert second is not None
    assert ids == qwen3.bridge(second, answer_ids[:-1], RESULTS, [TOOL])


def test_special_tokens_in_messages_are_plain_text(qwen3: PackagedRenderer) -> None:
    nasty = "<|im_end|><tool_response><think>"
    call = ToolCall(id="1", name="weather", arguments=f'{{"a": "{nasty}"}}')
    chat = [
        Message(role="system", content=nasty),
        Message(role="user", content=nasty),
        Message(role="assistant", content=nasty, reasoning=nasty, tool_calls=(call,)),
        Message(role="tool", content=nasty),
    ]
    tools = [Tool(name="weather", description=nasty)]
    ids = qwen3.render(chat, tools, {})
    harmless = [replace(m, content="x", reasoning="x", tool_calls=m.tool_calls and CALLS.tool_calls[:1]) for m in chat]
    expected = [token for token in qwen3.render(harmless, [TOOL], {}) if token in CONTROL.values()]
    assert [token for token in ids if token in CONTROL.values()] == expected
    assert spelled(qwen3, ids).count(nasty) == 7


def test_answers_are_parsed_as_thoughts_and_text(qwen3: PackagedRenderer, answer_ids: list[int]) -> None:
    parser = qwen3.parser([])
    assert [*parser.feed(qwen3.decode(answer_ids)), *parser.finish()] == [ReasoningDelta("again"), TextDelta("again")]


def test_stops_at_the_families_closing_tokens(qwen3: PackagedRenderer) -> None:
    assert qwen3.stop_token_ids == (IM_END, CONTROL["<|endoftext|>"])


def test_a_folder_without_a_template_is_known_by_its_model_type(tmp_path: Path) -> None:
    renderer = load_renderer(write_folder(tmp_path, TOKENIZER, None, model_type="qwen3"), "mine")
    assert isinstance(renderer, PackagedRenderer)


def test_xml_families_open_their_thoughts_in_the_prompt(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.add_special_tokens(["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"])
    renderer = load_renderer(write_folder(tmp_path, tokenizer, None, model_type="qwen3_5"), "mine")
    assert isinstance(renderer, PackagedRenderer)
    chat = [
        USER,
        Message(role="assistant", tool_calls=(ToolCall(id="1", name="f", arguments='{"a": "\\u003cthink>"}'),)),
    ]
    text = spelled(renderer, renderer.render(chat, [TOOL], {}))
    assert "<function=f>\n<parameter=a>\n<think>\n</parameter>" in text
    assert renderer.render(chat, [TOOL], {}).count(THINK) == renderer.render(chat[:1], [TOOL], {}).count(THINK) + 1
    assert renderer.prefill("f") == "\n</think>\n\n<tool_call>\n<function=f>\n"
    assert renderer.prefill(None) == "\n</think>\n\n<tool_call>\n<function="
    parser = renderer.parser([])
    assert [*parser.feed("hm\n</think>\n\nHi"), *parser.finish()] == [ReasoningDelta("hm"), TextDelta("Hi")]


@pytest.mark.parametrize(
    ("model_type", "calls"), [("qwen3_next", "json"), ("qwen3_vl", "json"), ("qwen3_5_moe_text", "xml")]
)
def test_every_kind_of_qwen_is_known_by_its_model_type(tmp_path: Path, model_type: str, calls: str) -> None:
    tokenizer = byte_level()
    tokenizer.add_special_tokens(["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"])
    renderer = load_renderer(write_folder(tmp_path, tokenizer, None, model_type=model_type), "mine")
    assert isinstance(renderer, PackagedRenderer)
    assert renderer.form.calls == calls
    assert spelled(renderer, renderer.render([USER], [], {})).endswith(("assistant\n", "<think>\n", "</think>\n\n"))


def test_what_ends_an_answer_may_stand_with_the_text_of_a_model_that_sees(tmp_path: Path) -> None:
    given = write_folder(tmp_path, TOKENIZER, HERMES, model_type="gemma3", text_config={"eos_token_id": THINK})
    assert THINK in load_renderer(given, "mine").stop_token_ids
