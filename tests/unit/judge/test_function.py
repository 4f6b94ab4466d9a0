"""Reward functions of the user's own: where they are found, what they may return, and how they may misbehave."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.errors import ConfigError
from openclaw_rl.judge.function import MAX_STUCK, FunctionJudge
from openclaw_rl.types import Verdict
from tests.unit.judge.talk import called, said, talk, thumbs


def judge_of(folder: Path, source: str, name: str = "reward", **options: Any) -> FunctionJudge:
    file = folder / "mine.py"
    file.write_text(source)
    return FunctionJudge(f"{file}:{name}", **options)


def module_in(folder: Path) -> Any:
    file = str(folder / "mine.py")
    return next(m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file)


def outcome(verdict: Verdict) -> tuple[str, int | None]:
    return verdict.outcome, verdict.score


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("0.7", ("scored", 1)),
        ("-3", ("scored", -1)),
        ("0", ("scored", 0)),
        ("-0.0", ("scored", 0)),
        ("None", ("abstained", None)),
        ("float('nan')", ("failed", None)),
        ("float('inf')", ("failed", None)),
        ("'1'", ("failed", None)),
        ("True", ("failed", None)),
        ("[1]", ("failed", None)),
        ("__import__('numpy').float32(0.5)", ("scored", 1)),
        ("__import__('numpy').array(-2)", ("scored", -1)),
        ("1 / 0", ("failed", None)),
        ("__import__('sys').exit(3)", ("failed", None)),
    ],
)
async def test_what_a_function_returns(tmp_path: Path, returned: str, expected: tuple[str, int | None]) -> None:
    judge = judge_of(tmp_path, f"def reward(prompt, response, next_feedback):\n    return {returned}\n")
    verdict = await judge.judge(talk("thanks"))
    assert outcome(verdict) == expected
    assert verdict.reason or verdict.outcome == "scored"


@pytest.mark.parametrize(("returned", "reward"), [("0.37", 0.37), ("-3", -3.0), ("0", 0.0), ("None", None)])
async def test_the_number_is_the_reward(tmp_path: Path, returned: str, reward: float | None) -> None:
    verdict = await judge_of(tmp_path, f"def reward(*_):\n    return {returned}\n").judge(talk("thanks"))
    assert verdict.reward == reward


async def test_what_a_function_is_given(tmp_path: Path) -> None:
    source = "seen = []\ndef reward(*args):\n    seen.append(args)\n    return 1\n"
    judge = judge_of(tmp_path, source)
    reply = said("assistant", "look", tool_calls=called("ls", '{"a": 1}').tool_calls, reasoning="hm")
    await judge.judge(talk(said("tool", "x"), "thanks", request="files?", reply=reply))
    await judge.judge(talk(feedback=[thumbs(None, "good")]))
    module = module_in(tmp_path)
    assert module.seen[-2:] == [
        ("files?", 'look\n\nls({"a": 1})', "x\n\nthanks"),
        ("Explain gravity.", "Gravity is a force between masses.", "good"),
    ]


async def test_the_words_of_an_error_are_kept_apart_from_its_reason(tmp_path: Path) -> None:
    judge = judge_of(tmp_path, "def reward(p, r, n):\n    raise KeyError(n)\n")
    verdict = await judge.judge(talk("my private words"))
    assert verdict.reason == "the function raised KeyError"
    assert verdict.votes[0].raw == "'my private words'"


CLASS = """
class CustomRewardModel:
    def compute_reward(self, prompt: str, response: str, next_feedback: str) -> float:
        return 1.0 if "thanks" in next_feedback else -1.0
"""


@pytest.mark.parametrize("name", ["CustomRewardModel", "instance", "method"])
async def test_the_shapes_of_a_reward_model(tmp_path: Path, name: str) -> None:
    source = f"{CLASS}\ninstance = CustomRewardModel()\nmethod = instance.compute_reward\n"
    judge = judge_of(tmp_path, source, name)
    assert outcome(await judge.judge(talk("thanks"))) == ("scored", 1)
    assert outcome(await judge.judge(talk("no"))) == ("scored", -1)
    assert judge.name == "function"
    assert judge.prompt_version.startswith(f"{name}@")


async def test_coroutines_are_awaited(tmp_path: Path) -> None:
    source = "import asyncio\nasync def reward(p, r, n):\n    await asyncio.sleep(0)\n    return -1\n"
    assert outcome(await judge_of(tmp_path, source).judge(talk("x"))) == ("scored", -1)


BATCHES = """
import numpy, time
sizes = []
class Model:
    def batch_compute_rewards(self, batch_data):
        sizes.append(len(batch_data))
        time.sleep(0.02)
        return numpy.array([{"good": 1.0, "bad": -1.0}[item["feedback"]] for item in batch_data])
model = Model()
"""


async def test_turns_that_wait_are_judged_together(tmp_path: Path) -> None:
    judge = judge_of(tmp_path, BATCHES, "model")
    said_next = ["good", "bad"] * 5
    verdicts = await asyncio.gather(*(judge.judge(talk(text)) for text in said_next))
    assert [v.score for v in verdicts] == [1 if text == "good" else -1 for text in said_next]
    module = module_in(tmp_path)
    assert module.sizes[0] == 10 or module.sizes[:2] == [1, 9]


async def test_a_batch_with_an_error_fails_each_of_its_turns(tmp_path: Path) -> None:
    judge = judge_of(tmp_path, BATCHES, "model")
    verdicts = await asyncio.gather(*(judge.judge(talk(text)) for text in ("odd", "odd")))
    assert {v.reason for v in verdicts} == {"the function raised KeyError"}


@pytest.mark.parametrize("returned", ["[]", "[1, 2]", "1", "None", "{}"])
async def test_a_batch_has_one_reward_for_each_turn(tmp_path: Path, returned: str) -> None:
    source = f"class Model:\n    def batch_compute_rewards(self, items):\n        return {returned}\n"
    verdict = await judge_of(tmp_path, source, "Model").judge(talk("x"))
    assert verdict.reason == "the function did not return one reward for each of 1 turns"


STUCK = """
import threading
release = threading.Event()
def reward(prompt, response, next_feedback):
    if next_feedback == "hang":
        release.wait(30)
    return 1
"""


async def test_a_function_that_never_returns_only_costs_its_turn(tmp_path: Path) -> None:
    judge = judge_of(tmp_path, STUCK, timeout_s=0.05)
    verdict = await judge.judge(talk("hang"))
    assert (verdict.outcome, verdict.reason) == ("failed", "the function gave no answer within 0.05 s")
    assert outcome(await judge.judge(talk("fine"))) == ("scored", 1)
    for _ in range(MAX_STUCK - 1):
        await judge.judge(talk("hang"))
    before = threading.active_count()
    verdict = await judge.judge(talk("fine"))
    assert verdict.reason == f"{MAX_STUCK} calls of the function have not returned; restart when it is mended"
    assert threading.active_count() == before
    module = module_in(tmp_path)
    module.release.set()
    for thread in [t for t in threading.enumerate() if t.name == "reward function"]:
        await asyncio.to_thread(thread.join)
    assert outcome(await judge.judge(talk("fine"))) == ("scored", 1)


GATED = """
import threading
begun, release = threading.Semaphore(0), threading.Semaphore(0)
class Model:
    def batch_compute_rewards(self, items):
        begun.release()
        release.acquire(timeout=30)
        return [1.0] * len(items)
"""


async def test_who_gives_up_waiting_takes_nobody_along(tmp_path: Path) -> None:
    """The first is served alone, the others wait and are served together, by one who then gives up."""
    judge = judge_of(tmp_path, GATED, "Model")
    module = module_in(tmp_path)
    first, second, third = [asyncio.create_task(judge.judge(talk(text))) for text in "abc"]
    await asyncio.to_thread(module.begun.acquire)
    module.release.release()
    await first
    await asyncio.to_thread(module.begun.acquire)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    module.release.release(2)
    assert outcome(await third) == ("scored", 1)


async def test_a_module_is_found_by_its_import_path() -> None:
    judge = FunctionJudge("operator:length_hint")
    assert (await judge.judge(talk("x"))).outcome == "failed"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("nothing", "is not of the form package.module:name or file.py:name"),
        (":reward", "is not of the form"),
        ("a.py:", "is not of the form"),
        ("no_such_package.x:reward", "cannot be imported: ModuleNotFoundError"),
        ("/no/such/file.py:reward", "there is no file"),
        ("math:no_such_name", "has no 'no_such_name'"),
        ("math:pi", "is neither a function nor has it compute_reward"),
        ("pathlib:PurePath.name", "is not of the form"),
    ],
)
def test_a_wrong_path_says_what_is_wrong(path: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        FunctionJudge(path)


def test_a_broken_file_and_a_class_with_arguments_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be imported: SyntaxError"):
        judge_of(tmp_path, "def")
    with pytest.raises(
        ConfigError, match=r"cannot be made: .*; give its checkpoint \(evaluation.judge_path\), or name an instance"
    ):
        judge_of(tmp_path, "class Model:\n    def __init__(self, path): ...\n", "Model")


def test_the_version_follows_the_file(tmp_path: Path) -> None:
    first = judge_of(tmp_path, "def reward(p, r, n): return 1\n").prompt_version
    assert first == judge_of(tmp_path, "def reward(p, r, n): return 1\n").prompt_version
    assert first != judge_of(tmp_path, "def reward(p, r, n): return 2\n").prompt_version


async def test_a_class_is_made_with_its_checkpoint(tmp_path: Path) -> None:
    source = (
        "class Model:\n"
        "    def __init__(self, checkpoint_path):\n"
        "        self.score = float(__import__('pathlib').Path(checkpoint_path).read_text())\n"
        "    def compute_reward(self, prompt, response, next_feedback):\n"
        "        return self.score\n"
        "class Plain:\n"
        "    def compute_reward(self, prompt, response, next_feedback):\n"
        "        return 1\n"
    )
    checkpoint = tmp_path / "weights"
    checkpoint.write_text("-1")
    assert outcome(await judge_of(tmp_path, source, "Model", checkpoint=checkpoint).judge(talk("ok"))) == ("scored", -1)
    assert outcome(await judge_of(tmp_path, source, "Plain", checkpoint=checkpoint).judge(talk("ok"))) == ("scored", 1)
    with pytest.raises(ConfigError, match="cannot be made: FileNotFoundError.*; mend it"):
        judge_of(tmp_path, source, "Model", checkpoint=tmp_path / "none")
