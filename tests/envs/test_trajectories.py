"""Harbor's and OpenEnv's own models as the oracle of what we write: they read it, and say it back the same.

HARBOR_PYTHON names a Python 3.12 with `pip install harbor`, OPENENV_PYTHON one with `pip install openenv`.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from openclaw_rl.envs.trajectories.atif import atif_trajectories, read_atif
from openclaw_rl.envs.trajectories.recording import Recording
from openclaw_rl.envs.trajectories.training_trace import is_traceable, read_training_trace, training_trace
from tests.unit.envs.trajectories.sessions import recordings

HARBOR = os.environ.get("HARBOR_PYTHON", "")
OPENENV = os.environ.get("OPENENV_PYTHON", "")

pytestmark = pytest.mark.timeout(240)

READ_ATIF = """
import json, sys
from harbor.models.trajectories import Trajectory
told = [Trajectory.model_validate(each).to_json_dict() for each in json.load(sys.stdin)]
json.dump(told, sys.stdout)
"""

READ_TRACES = """
import json, sys
from openenv.core.harness.training import TrainingTrace
told = [TrainingTrace.model_validate_json(json.dumps(each)).model_dump(mode="json") for each in json.load(sys.stdin)]
json.dump(told, sys.stdout)
"""

many = settings(
    max_examples=1,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
sessions = st.lists(recordings(), min_size=60, max_size=60)


def said_back(python: str, program: str, documents: list[Any]) -> Any:
    ran = subprocess.run([python, "-c", program], input=orjson.dumps(documents), capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return orjson.loads(ran.stdout)


@pytest.mark.skipif(not HARBOR, reason="HARBOR_PYTHON names no Python 3.12 that has the package harbor")
@many
@given(sessions)
def test_harbor_reads_what_we_write_and_we_read_what_it_writes(made: list[Recording]) -> None:
    written = [atif_trajectories(recording) for recording in made]
    told = said_back(HARBOR, READ_ATIF, [document for documents in written for document in documents])
    assert told == [document for documents in written for document in documents]
    back = iter(told)
    for recording, documents in zip(made, written, strict=True):
        assert read_atif({f"{number}.json": orjson.dumps(next(back)) for number in range(len(documents))}) == [
            recording
        ]


@pytest.mark.skipif(not OPENENV, reason="OPENENV_PYTHON names no Python that has the package openenv")
@many
@given(sessions)
def test_openenv_reads_what_we_write_and_says_the_same(made: list[Recording]) -> None:
    kept = [each for each in made if any(is_traceable(record.turn) for record in each.records)]
    written = [training_trace(recording) for recording in kept]
    told = said_back(OPENENV, READ_TRACES, written)
    assert told == written
    for trace in told:
        assert training_trace(read_training_trace(orjson.dumps(trace), file="trace.json")) == trace
