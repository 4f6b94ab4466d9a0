"""reasoning-gym itself: its problems become tasks, and its checks say how much of the points an answer gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.toolcall.gym import Drawn, Gym, make_tasks
from openclaw_rl.envs.toolcall.tasks import Deeds, ToolTask
from openclaw_rl.errors import TaskError
from tests.fakes.boxes import sandbox_or_skip
from tests.fakes.oracles import python_with

pytestmark = [pytest.mark.envs, pytest.mark.timeout(600)]


@pytest.fixture
def sandbox(tmp_path: Path) -> BubblewrapSandbox:
    return sandbox_or_skip(tmp_path / "boxes")


@pytest.fixture
def gym(sandbox: BubblewrapSandbox) -> Gym:
    return Gym(sandbox, python=python_with("reasoning-gym==0.1.25"))


async def made(gym: Gym, dataset: str, **config: object) -> list[ToolTask]:
    return await make_tasks(
        gym, dataset, config=config, seed=0, num_train=6, num_held_out=3, tools=("calculator",), system="Answer."
    )


async def test_problems_are_the_same_again_and_those_held_out_are_others(gym: Gym) -> None:
    tasks = await made(gym, "chain_sum", min_terms=2, max_terms=2)
    assert [task.name for task in tasks] == [
        task.name for task in await made(gym, "chain_sum", min_terms=2, max_terms=2)
    ]
    assert [task.split for task in tasks] == ["train"] * 6 + ["held_out"] * 3
    assert len({task.problem.question for task in tasks}) == 9
    for task in tasks:
        answer = json.loads(task.problem.solution[0].arguments)["answer"]
        assert (await task.problem.goal.read(Deeds(answer=f"The answer is {answer}."))).share == 1.0
        assert (await task.problem.goal.read(Deeds())).share == 0.0


async def test_its_own_check_may_give_a_part_of_the_points(gym: Gym) -> None:
    drawn = Drawn(dataset="chain_sum", config={}, seed=0, size=1)
    ((_, answer),) = await gym.make(drawn)
    assert answer is not None
    assert await gym.score(drawn, 0, answer) == 1.0
    assert await gym.score(drawn, 0, "no number") < 0.1


async def test_a_dataset_that_is_none_is_told(gym: Gym) -> None:
    with pytest.raises(TaskError, match="reasoning-gym makes no chess_with_dragons so"):
        await made(gym, "chess_with_dragons")
    with pytest.raises(TaskError, match="reasoning-gym makes no chain_sum so"):
        await made(gym, "chain_sum", terms="many")


async def test_where_it_is_not_installed_the_remedy_is_told(sandbox: BubblewrapSandbox) -> None:
    with pytest.raises(TaskError, match=r"pip install openclaw-rl\[envs\]"):
        await made(Gym(sandbox, python=python_with("wheel==0.45.1")), "chain_sum")
