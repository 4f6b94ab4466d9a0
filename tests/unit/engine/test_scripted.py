from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from openclaw_rl.engine.scripted import ScriptedAnswer, ScriptedEngine, ScriptedOptions
from openclaw_rl.errors import ConfigError, EngineLost, EngineRefused, ModelError
from openclaw_rl.types import Publication, ScoreRequest
from tests.factories.weights import folder_ref
from tests.tiny import IM_END
from tests.unit.engine.prompts import BASE_AGAIN, all_deltas, ask, chat, saved, until_error, whole

LONG = "the answer to the question is that there is no answer at all"


def engine(folder: Path, *replies: ScriptedAnswer, **options: Any) -> ScriptedEngine:
    return ScriptedEngine(folder, ScriptedOptions(replies=replies, **options))


async def text_of(folder: Path, tokenizer: Tokenizer, prompt_ids: Sequence[int], *replies: ScriptedAnswer) -> str:
    answer = await whole(engine(folder, *replies), ask(prompt_ids, max_tokens=500))
    assert (answer.token_ids[-1], answer.finish_reason) == (IM_END, "stop")
    return str(tokenizer.decode(list(answer.token_ids[:-1]), skip_special_tokens=False))


async def test_without_rules_it_echoes(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    assert await text_of(tokenizer_folder, tokenizer, chat(tokenizer, "hello there")) == "You said: hello there"
    long = chat(tokenizer, "x" * 300)
    assert await text_of(tokenizer_folder, tokenizer, long) == "You said: " + "x" * 200


async def test_special_tokens_in_an_echo_stay_text(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    pieces = tokenizer.encode("<|im_", add_special_tokens=False).ids + tokenizer.encode("end|>").ids
    header, footer = chat(tokenizer, "?")[:4], chat(tokenizer, "?")[5:]
    prompt = [*header, *pieces, *footer]
    assert tokenizer.decode(prompt, skip_special_tokens=False).count("<|im_end|>") == 2
    assert await text_of(tokenizer_folder, tokenizer, prompt) == "You said: <|im_end|>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("please add 12 and 30", "12 + 30, said \\n and 12"),
        ("say nothing", ""),
        ("please add one", "first match wins"),
        ("add", "first match wins"),
    ],
)
async def test_the_first_rule_that_matches_answers(
    tokenizer_folder: Path, tokenizer: Tokenizer, text: str, expected: str
) -> None:
    rules = (
        ScriptedAnswer(match=r"add (\d+) and (\d+)", reply=r"\1 + \2, said \n and \1"),
        ScriptedAnswer(match="nothing", reply=""),
        ScriptedAnswer(match="add", reply="first match wins"),
        ScriptedAnswer(match="", reply="never reached"),
    )
    assert await text_of(tokenizer_folder, tokenizer, chat(tokenizer, text), *rules) == expected


async def test_rules_look_at_the_last_user_message(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    history = chat(tokenizer, "first", answer="second")
    end = tokenizer.encode("<|im_end|>\n<|im_start|>tool\nthird<|im_end|>\n<|im_start|>assistant\n").ids
    assert await text_of(tokenizer_folder, tokenizer, history + end) == "You said: first"
    assert await text_of(tokenizer_folder, tokenizer, tokenizer.encode("no chat").ids) == "You said: "


async def test_rules_look_at_all_that_was_said_since_the_last_answer(
    tokenizer_folder: Path, tokenizer: Tokenizer
) -> None:
    rules = (ScriptedAnswer(match="cat", reply="meow"), ScriptedAnswer(match=r"(\w+)\n(\w+)$", reply=r"\1 and \2"))
    history = chat(tokenizer, "a cat", answer="user cat")
    texts = "<|im_end|>\n<|im_start|>user\ndog<|im_end|>\n<|im_start|>user\nnote<|im_end|>\n<|im_start|>assistant\n"
    prompt = history + tokenizer.encode(texts).ids
    assert await text_of(tokenizer_folder, tokenizer, prompt, *rules) == "dog and note"


async def test_an_answer_is_continued_where_it_was_cut(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    scripted = engine(tokenizer_folder, ScriptedAnswer(match="q", reply=LONG))
    prompt = chat(tokenizer, "q")
    uncut = await whole(scripted, ask(prompt, top_logprobs=2))
    for cut in range(len(uncut.token_ids)):
        rest = await whole(scripted, ask([*prompt, *uncut.token_ids[:cut]], top_logprobs=2))
        assert rest.token_ids == uncut.token_ids[cut:]
        assert rest.logprobs == uncut.logprobs[cut:]
        assert rest.top_logprobs == (uncut.top_logprobs or ())[cut:]


async def test_a_prefilled_beginning_is_not_repeated(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    rule = ScriptedAnswer(match="q", reply=LONG)
    prompt = chat(tokenizer, "q", answer=LONG[:6])
    assert prompt[-1] not in chat(tokenizer, "q", answer=LONG), "the cut is inside a token of the whole"
    assert await text_of(tokenizer_folder, tokenizer, prompt, rule) == LONG[6:]
    other = chat(tokenizer, "q", answer="something else ")
    assert await text_of(tokenizer_folder, tokenizer, other, rule) == LONG


async def test_it_stops_at_the_limit_or_at_a_stop_id(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    scripted = engine(tokenizer_folder, ScriptedAnswer(match="q", reply=LONG), context_window=40)
    prompt = chat(tokenizer, "q")
    uncut = await whole(engine(tokenizer_folder, ScriptedAnswer(match="q", reply=LONG)), ask(prompt))
    cut = await whole(scripted, ask(prompt, max_tokens=5))
    assert (cut.token_ids, cut.finish_reason) == (uncut.token_ids[:5], "length")
    full_window = await whole(scripted, ask(prompt))
    assert (len(full_window.token_ids), full_window.finish_reason) == (40 - len(prompt), "length")
    exactly = await whole(engine(tokenizer_folder, ScriptedAnswer(match="q", reply="a")), ask(prompt, max_tokens=2))
    assert exactly.finish_reason == "stop"


async def test_what_does_not_fit_is_refused(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    prompt = chat(tokenizer, "q")
    with pytest.raises(EngineRefused) as refusal:
        await whole(engine(tokenizer_folder, context_window=len(prompt)), ask(prompt))
    assert refusal.value.code == "context_length_exceeded"


async def test_versions_label_the_answer(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    scripted = engine(tokenizer_folder, versions=("v0", "v4"))
    prompt = chat(tokenizer, "q")
    assert (await whole(scripted, ask(prompt))).version == "v4"
    assert (await whole(scripted, ask(prompt, version="v0"))).version == "v0"
    assert (await scripted.state()).live_version == "v4"


async def test_logprobs_are_negative_and_the_best_comes_first(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    answer = await whole(engine(tokenizer_folder), ask(chat(tokenizer, "hello"), top_logprobs=3))
    assert answer.top_logprobs is not None
    for token, logprob, tops in zip(answer.token_ids, answer.logprobs, answer.top_logprobs, strict=True):
        assert logprob < 0
        assert len({top.token_id for top in tops}) == 3
        assert (tops[0].token_id, tops[0].logprob) == (token, logprob)
        assert tops[0].logprob > tops[1].logprob > tops[2].logprob
    assert len(set(answer.logprobs)) > len(answer.logprobs) // 2


async def test_a_score_is_what_generating_would_have_given(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    scripted = engine(tokenizer_folder, ScriptedAnswer(match="q", reply=LONG))
    prompt = chat(tokenizer, "q")
    answer = await whole(scripted, ask(prompt, top_logprobs=2))
    text = (*prompt, *answer.token_ids)
    starts = (len(prompt), len(text) - 1)
    first, second = await scripted.score(
        ScoreRequest(request_id="s", sequences=(text, text), starts=starts, top_logprobs=2)
    )
    assert (first.logprobs, first.top_logprobs) == (answer.logprobs, answer.top_logprobs)
    assert second.logprobs == answer.logprobs[-1:]
    (without,) = await scripted.score(ScoreRequest(request_id="s", sequences=(text,), starts=(1,)))
    assert len(without.logprobs) == len(text) - 1
    assert without.top_logprobs is None


async def test_a_score_is_refused_like_an_answer(tokenizer_folder: Path) -> None:
    with pytest.raises(EngineRefused) as refusal:
        await engine(tokenizer_folder, context_window=3).score(
            ScoreRequest(request_id="s", sequences=((1, 2, 3, 4),), starts=(1,))
        )
    assert refusal.value.code == "context_length_exceeded"


async def test_ids_beyond_its_vocabulary_are_refused(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    scripted = engine(tokenizer_folder)
    size = tokenizer.get_vocab_size()
    assert (await scripted.state()).vocab_size == size
    assert (await whole(scripted, ask([size - 1]))).finish_reason == "stop"
    with pytest.raises(EngineRefused, match=f"token id {size} is outside"):
        await whole(scripted, ask([size]))


async def test_a_published_version_answers(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    scripted = engine(tokenizer_folder)
    request = ask(chat(tokenizer, "q"))
    await scripted.publish(saved(tmp_path, "v1"))
    await scripted.publish(saved(tmp_path, "v2", live=False))
    state = await scripted.state()
    assert (state.versions, state.live_version) == (("v0", "v1", "v2"), "v1")
    assert (await whole(scripted, request)).version == "v1"
    assert (await whole(scripted, ask(request.token_ids, version="v2"))).version == "v2"
    await scripted.publish(saved(tmp_path, "v2"))
    assert (await scripted.state()).live_version == "v2"
    await scripted.publish(saved(tmp_path, "v1", live=False))
    assert (await scripted.state()).live_version == "v2", "publishing again without live changes nothing"
    await scripted.publish(BASE_AGAIN)
    assert (await whole(scripted, request)).version == "v0"
    assert (await scripted.state()).versions == ("v0", "v1", "v2")


async def test_a_running_answer_keeps_its_version(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    scripted = engine(tokenizer_folder, ScriptedAnswer(match="q", reply=LONG))
    await scripted.publish(saved(tmp_path, "v1"))
    running = scripted.generate(ask(chat(tokenizer, "q")))
    deltas = [await anext(running)]
    await scripted.publish(saved(tmp_path, "v2"))
    await scripted.retire("v1")
    deltas += [delta async for delta in running]
    assert {delta.version for delta in deltas} == {"v1"}
    assert deltas[-1].finish_reason == "stop"
    with pytest.raises(EngineRefused, match="v1"):
        await whole(scripted, ask([1], version="v1"))


async def test_a_folder_that_was_changed_is_not_published(tokenizer_folder: Path, tmp_path: Path) -> None:
    scripted = engine(tokenizer_folder)
    publication = saved(tmp_path, "v1")
    (tmp_path / "v1" / "adapter_model.safetensors").write_text("other weights")
    with pytest.raises(EngineRefused) as refusal:
        await scripted.publish(publication)
    assert refusal.value.code == "checksum_mismatch"
    state = await scripted.state()
    assert (state.versions, state.live_version) == (("v0",), "v0")


async def test_a_label_without_a_folder_is_enough(tokenizer_folder: Path, tmp_path: Path) -> None:
    scripted = engine(tokenizer_folder)
    for number, path in enumerate(("/nowhere", str(tmp_path / "nowhere"))):
        await scripted.publish(Publication(version=f"v{number + 1}", weights=folder_ref(path, "x")))
    assert (await scripted.state()).versions == ("v0", "v1", "v2")
    with pytest.raises(EngineRefused) as refusal:
        await scripted.publish(Publication(version="v1", weights=folder_ref("/nowhere", "y")))
    assert refusal.value.code == "version_conflict"


async def test_of_two_that_claim_a_label_the_first_gets_it(tokenizer_folder: Path, tmp_path: Path) -> None:
    scripted = engine(tokenizer_folder)
    first, other = saved(tmp_path, "v1"), saved(tmp_path, "v2")
    second = Publication(version="v1", weights=other.weights)
    results = await asyncio.gather(scripted.publish(first), scripted.publish(second), return_exceptions=True)
    assert results[0] is None
    assert isinstance(results[1], EngineRefused)
    assert results[1].code == "version_conflict"


async def test_what_is_live_or_the_base_is_not_retired(tokenizer_folder: Path, tmp_path: Path) -> None:
    scripted = engine(tokenizer_folder)
    await scripted.publish(saved(tmp_path, "v1"))
    for version, code in (("v0", "version_is_base"), ("v1", "version_is_live"), ("v9", "version_not_found")):
        with pytest.raises(EngineRefused) as refusal:
            await scripted.retire(version)
        assert refusal.value.code == code
    await scripted.publish(BASE_AGAIN)
    await scripted.retire("v1")
    assert (await scripted.state()).versions == ("v0",)


async def test_a_pace_sends_token_by_token(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    paced = engine(tokenizer_folder, tokens_per_s=20.0, first_token_delay_s=0.01)
    fast = engine(tokenizer_folder)
    request = ask(chat(tokenizer, "hello"))
    deltas = await all_deltas(paced, request)
    assert len(deltas) > len(await all_deltas(fast, request))
    assert (await whole(paced, request)) == (await whole(fast, request))


async def test_an_answer_at_full_speed_lets_others_run(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    generator = engine(tokenizer_folder).generate(ask(chat(tokenizer, "hello")))
    task = asyncio.ensure_future(anext(generator))
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_scripted_death_comes_once(tokenizer_folder: Path, tokenizer: Tokenizer) -> None:
    scripted = engine(tokenizer_folder, ScriptedAnswer(match="q", reply=LONG, fail_after_tokens=3))
    request = ask(chat(tokenizer, "q"))
    got, error = await until_error(scripted, request)
    assert isinstance(error, EngineLost)
    answer = await whole(scripted, request)
    assert got == list(answer.token_ids[:3])


@pytest.mark.parametrize(
    "raw", [[], {"speed": 3}, {"replies": [{"match": "x"}]}, {"replies": [{"match": "x", "reply": "y", "z": 1}]}]
)
def test_wrong_options_are_named(raw: Any) -> None:
    with pytest.raises(ConfigError, match="options"):
        ScriptedOptions.from_json(raw)


@pytest.mark.parametrize(("match", "reply"), [("(", "x"), ("(a)", r"\2")])
def test_a_rule_that_cannot_work_is_refused_at_once(match: str, reply: str) -> None:
    with pytest.raises(ConfigError):
        ScriptedAnswer(match=match, reply=reply)


def test_options_come_from_json() -> None:
    raw = {"replies": [{"match": "a", "reply": "b"}], "tokens_per_s": 5, "versions": ["v0", "v1"]}
    assert ScriptedOptions.from_json(raw) == ScriptedOptions(
        replies=(ScriptedAnswer(match="a", reply="b"),), tokens_per_s=5, versions=("v0", "v1")
    )


def test_a_folder_without_a_chatml_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        engine(tmp_path)
    Tokenizer.from_str('{"model": {"type": "BPE", "vocab": {}, "merges": []}}').save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="ChatML"):
        engine(tmp_path)
