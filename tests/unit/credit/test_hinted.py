"""Prompts with a hint in them, rendered for real: which ids they share, and that no sampled id is encoded anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from openclaw_rl.credit.hinted import beside_action, in_whole, sampled_answers, unhinted
from openclaw_rl.protocols import Renderer
from openclaw_rl.render import load_renderer
from openclaw_rl.render.packaged import PackagedRenderer
from openclaw_rl.render.template import TemplateRenderer
from openclaw_rl.types import Candidate, Message, Tool, ToolCall, Turn
from tests.factories.conversations import HINT, make_turn
from tests.unit.render.tiny import HERMES, byte_level, write_folder

TOOL = Tool(name="ls", description="Lists files.", parameters={"type": "object", "properties": {}})
SYSTEM = Message(role="system", content="Be kind.")
USER = Message(role="user", content="Which files are there?")
CALL = Message(role="assistant", reasoning="again", tool_calls=(ToolCall(id="c1", name="ls", arguments="{}"),))
RESULT = Message(role="tool", content="a.txt", tool_call_id="c1")
ANSWER = Message(role="assistant", content="the weather")

TOKENIZER = byte_level()
CONTROL = {token.content: number for number, token in TOKENIZER.get_added_tokens_decoder().items()}
PLAIN_TURNS = (
    "{% for m in messages %}%REFUSE%<|im_start|>[{{ m.role }}] {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>[assistant] {% endif %}"
)


def turn_of(
    renderer: Renderer,
    messages: Sequence[Message],
    tools: Sequence[Tool] = (),
    sampled: Mapping[int, Sequence[int]] | None = None,
    prefill: Sequence[int] = (),
) -> Turn:
    """A turn as the gateway makes it: rendered around the answers that were sampled before."""
    ids = (*renderer.render(messages, tools, sampled or {}), *prefill)
    return make_turn(messages=tuple(messages), tools=tuple(tools), prompt_ids=ids, num_prefill=len(prefill))


def teacher_ids(turn: Turn, candidate: Candidate) -> list[int]:
    return [*turn.prompt_ids[: candidate.num_shared], *candidate.suffix_ids]


def spelled(renderer: Renderer, ids: Sequence[int]) -> str:
    return b"".join(map(renderer.token_bytes, ids)).decode("utf-8", "replace")


def letters(renderer: Renderer, text: str, end: int) -> list[int]:
    """Sampled ids that no encoder would give for their text."""
    return [*(token for letter in text for token in renderer.encode(letter)), end]


def with_hint(messages: Sequence[Message], hint: str) -> list[Message]:
    """The user's last words go on with it; after a tool's result the user speaks again."""
    *before, last = messages
    if last.role == "user":
        return [*before, Message(role="user", content=f"{last.content}\n\n{hint}")]
    return [*messages, Message(role="user", content=hint)]


@pytest.mark.parametrize(
    "messages",
    [
        (USER,),
        (SYSTEM, USER),
        (SYSTEM, USER, ANSWER, USER),
        (SYSTEM, USER, CALL, RESULT, RESULT),
        (USER, CALL, RESULT, ANSWER, USER, CALL, RESULT),
    ],
    ids=len,
)
@pytest.mark.parametrize("tool", [None, "ls"])
def test_next_to_the_action_all_but_the_opening_of_the_answer_is_shared(
    renderer: Renderer, messages: tuple[Message, ...], tool: str | None
) -> None:
    sampled = {
        i: letters(renderer, "again the weather", renderer.stop_token_ids[0])
        for i, message in enumerate(messages)
        if message.role == "assistant"
    }
    prefill = renderer.prefill_ids(tool) if tool else []
    turn = turn_of(renderer, messages, [TOOL], sampled, prefill)
    candidate = beside_action(turn, HINT, renderer)
    assert candidate is not None
    assert candidate.hint == HINT
    opening = 1 + len(renderer.encode("assistant\n"))
    closing = 1 + len(renderer.encode("\n"))
    assert candidate.num_shared >= len(turn.prompt_ids) - closing - opening - len(prefill)
    expected = renderer.render(with_hint(messages, HINT), [TOOL], sampled) + prefill
    assert teacher_ids(turn, candidate) == expected


def test_fifty_random_conversations_keep_every_sampled_id(renderer: Renderer) -> None:
    rng = Random(0)
    words = ["hello", " ", "\n\n", "<|im_end|>", "<|im_start|>user\n", "été", "語", "</tool_response>", "42", "{"]
    for _ in range(50):
        messages: list[Message] = [SYSTEM] if rng.random() < 0.5 else []
        sampled: dict[int, list[int]] = {}
        for _ in range(rng.randrange(1, 5)):
            if messages and messages[-1].role != "system":
                sampled[len(messages)] = [rng.randrange(17, 49_152) for _ in range(rng.randrange(20))]
                messages.append(ANSWER)
            role = rng.choice(["user", "tool"])
            messages.append(
                Message(role="tool" if role == "tool" else "user", content="".join(rng.choices(words, k=9)))
            )
        hint = "".join(rng.choices(words, k=5))
        turn = turn_of(renderer, messages, [TOOL] * rng.randrange(2), sampled)
        candidate = beside_action(turn, hint, renderer)
        assert candidate is not None
        assert teacher_ids(turn, candidate) == renderer.render(with_hint(messages, hint), turn.tools, sampled)


def test_in_the_last_user_message_the_tool_cycle_after_it_is_kept(renderer: Renderer) -> None:
    messages = (SYSTEM, USER, ANSWER, USER, CALL, RESULT)
    sampled = {i: letters(renderer, "again the weather", renderer.stop_token_ids[0]) for i in (2, 4)}
    prefill = renderer.prefill_ids("ls")
    turn = turn_of(renderer, messages, [TOOL], sampled, prefill)
    candidate = in_whole(turn, HINT, renderer, "last_user", sampled)
    assert candidate is not None
    ids = teacher_ids(turn, candidate)
    text = spelled(renderer, ids)
    assert f"{USER.content}\n\n[A note on this request]\n{HINT}<|im_end|>" in text
    assert text.count(HINT) == 1
    assert ids[-len(prefill) :] == prefill
    before = len(renderer.render(messages[:3], [TOOL], sampled))
    assert before <= candidate.num_shared < len(turn.prompt_ids) - len(prefill)
    for answer in sampled.values():
        assert spelled(renderer, answer) in text
    assert tuple(sampled[4]) == tuple(ids[ids.index(sampled[4][0], before) :][: len(sampled[4])])


def test_without_a_user_the_last_message_takes_the_hint(renderer: Renderer) -> None:
    turn = turn_of(renderer, (SYSTEM,))
    candidate = in_whole(turn, HINT, renderer, "last_user", {})
    assert candidate is not None
    assert f"Be kind.\n\n[A note on this request]\n{HINT}" in spelled(renderer, teacher_ids(turn, candidate))


def test_the_teacher_without_a_hint_reads_the_same_prompt() -> None:
    turn = make_turn()
    assert unhinted(turn) == Candidate(hint="", num_shared=len(turn.prompt_ids), suffix_ids=())


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> PackagedRenderer:
    """A family whose template drops old thoughts as soon as the user speaks."""
    end = CONTROL["<|im_end|>"]
    folder = write_folder(
        tmp_path_factory.mktemp("qwen3"), TOKENIZER, HERMES + "{#- </think> -#}", model_type="qwen3", eos_token_id=end
    )
    renderer = load_renderer(folder, "mine")
    assert isinstance(renderer, PackagedRenderer)
    return renderer


def test_a_hint_does_not_cost_the_thoughts_of_a_running_tool_cycle(thinking: PackagedRenderer) -> None:
    think, end_think, end = (CONTROL[token] for token in ("<think>", "</think>", "<|im_end|>"))
    answer = [think, *letters(thinking, "again", end_think), *letters(thinking, "again", end)]
    opening = len(thinking.encode("assistant\n")) + 1
    # Once as it was sampled, and once as the template writes it: then the user's word could be put there as well.
    for sampled in ({1: answer}, {}):
        turn = turn_of(thinking, (USER, CALL, RESULT), [TOOL], sampled)
        candidate = beside_action(turn, HINT, thinking)
        assert candidate is not None
        assert candidate.num_shared >= len(turn.prompt_ids) - opening
        text = spelled(thinking, teacher_ids(turn, candidate))
        assert text.endswith(f"<|im_start|>system\n{HINT}<|im_end|>\n<|im_start|>assistant\n")
    plain = turn_of(thinking, (USER,), [TOOL])
    chosen = beside_action(plain, HINT, thinking)
    assert chosen is not None
    assert f"<|im_start|>user\n{USER.content}\n\n{HINT}<|im_end|>" in spelled(thinking, teacher_ids(plain, chosen))


def load_template(folder: Path, refuse: str = "") -> TemplateRenderer:
    source = PLAIN_TURNS.replace("%REFUSE%", refuse)
    tokens = {"eos_token": "<|im_end|>"}
    renderer = load_renderer(write_folder(folder, TOKENIZER, source, tokenizer_config=tokens), "mine")
    assert isinstance(renderer, TemplateRenderer)
    return renderer


def test_a_template_of_any_kind_shares_all_but_the_opening(tmp_path: Path) -> None:
    renderer = load_template(tmp_path)
    answer = letters(renderer, "again", CONTROL["<|im_end|>"])
    turn = turn_of(renderer, (USER, ANSWER, USER), (), {1: answer})
    candidate = beside_action(turn, HINT, renderer)
    assert candidate is not None
    assert len(turn.prompt_ids) - candidate.num_shared <= 2 + len(renderer.encode("[assistant] "))
    assert spelled(renderer, teacher_ids(turn, candidate)).endswith(
        f"<|im_start|>[user] {USER.content}\n\n{HINT}<|im_end|><|im_start|>[assistant] "
    )


def test_a_family_that_takes_no_message_there_gets_the_hint_in_the_users_own(tmp_path: Path) -> None:
    """It wants user and assistant in turns, and no system message: a message of ours would be refused."""
    refuse = "{{ raise_exception('no') if m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == 0) }}"
    renderer = load_template(tmp_path, refuse)
    answer = letters(renderer, "again", CONTROL["<|im_end|>"])
    turn = turn_of(renderer, (USER, ANSWER, USER), (), {1: answer})
    candidate = beside_action(turn, HINT, renderer)
    assert candidate is not None
    assert candidate.num_shared >= len(renderer.render((USER,), (), {})) + len(answer)
    text = spelled(renderer, teacher_ids(turn, candidate))
    assert text.endswith(f"{USER.content}\n\n{HINT}<|im_end|><|im_start|>[assistant] ")


@pytest.mark.parametrize("at", ["end", "last id", "before the opening"])
def test_a_prompt_that_ends_otherwise_is_rendered_in_whole(renderer: Renderer, at: str) -> None:
    plain = renderer.render([USER], [], {})
    opening = len(renderer.encode("assistant\n"))
    changed = {
        "end": [*plain, 42],
        "last id": [*plain[:-1], 42],
        "before the opening": [*plain[: -opening - 1], 42, *plain[-opening:]],
    }
    turn = make_turn(messages=(USER,), prompt_ids=tuple(changed[at]))
    assert beside_action(turn, HINT, renderer) is None
    candidate = in_whole(turn, HINT, renderer, "after_history", {})
    assert candidate is not None
    assert teacher_ids(turn, candidate) == renderer.render(with_hint([USER], HINT), [], {})


def test_which_messages_were_sampled_before() -> None:
    first = make_turn(0, messages=(SYSTEM, USER))
    second = make_turn(1, parent=0, messages=(Message(role="system", content="It is 10:01."), USER, ANSWER, USER))
    third = make_turn(
        2, parent=1, messages=(Message(role="system", content="It is 10:02."), USER, ANSWER, USER, CALL, RESULT)
    )
    assert sampled_answers(third, [first, second, third]) == {2: first.answer_ids, 4: second.answer_ids}
    other_model = make_turn(1, parent=0, messages=second.messages, model="other")
    assert sampled_answers(third, [first, other_model, third]) == {2: first.answer_ids}
    compacted = make_turn(2, parent=1, messages=(SYSTEM, Message(role="user", content="In short: …"), ANSWER, USER))
    assert sampled_answers(compacted, [first, second]) == {}
