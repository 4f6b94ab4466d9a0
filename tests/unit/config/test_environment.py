"""What a worker inherits."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from openclaw_rl.config import ALIASES
from openclaw_rl.config.environment import worker_environment
from openclaw_rl.config.keys import kinds

NEEDED = {
    "PATH": "/usr/bin",
    "HOME": "/home/ann",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
    "VIRTUAL_ENV": "/venv",
    "CUDA_VISIBLE_DEVICES": "0",
    "LD_LIBRARY_PATH": "/usr/lib",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "OMP_NUM_THREADS": "2",
    "MKL_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HOME": "/cache",
    "XDG_CACHE_HOME": "/cache",
    "TRITON_CACHE_DIR": "/cache",
    "NCCL_DEBUG": "INFO",
    "PYTHONPATH": "/src",
    "MASTER_ADDR": "127.0.0.1",
    "OPENCLAW_RL_CRASH_AT": "x",
    "HTTPS_PROXY": "http://proxy:3128",
    "SSH_AUTH_SOCK": "/run/agent",
}


def test_what_it_needs_stays() -> None:
    assert worker_environment(NEEDED) == NEEDED


@pytest.mark.parametrize(
    "name",
    [
        *("OPENCLAW_RL__GATEWAY__API_KEY", "OPENCLAW_RL__EVALUATION__JUDGE_API_KEY", "OPENCLAW_RL__MODEL__NAME"),
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "OPENAI_API_KEY", "PGPASSWORD", "MYSQL_PWD", "GPG_KEY", "my_key"),
    ],
)
def test_what_names_a_secret_goes(name: str) -> None:
    assert worker_environment({**NEEDED, name: "x"}) == NEEDED


def test_every_variable_that_the_settings_read_a_secret_from_goes() -> None:
    secret = [alias.variable for alias in ALIASES if SecretStr in kinds(alias.key)]
    assert {"OPENCLAW_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "TINKER_API_KEY"} <= set(secret)
    assert worker_environment(dict.fromkeys(secret, "x")) == {}


def test_an_address_with_a_password_goes() -> None:
    assert worker_environment({"DATABASE_URL": "postgres://ann:sesame@db/rl", "HOME": "/"}) == {"HOME": "/"}
