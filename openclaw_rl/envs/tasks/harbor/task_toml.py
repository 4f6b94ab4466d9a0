"""The text of a task.toml -> its values: Harbor's schema 1.4, and the older keys that tasks still have.

`version`, `memory = "2G"`, `storage` and `allow_internet` are the older keys. Keys that the format does not have are
left alone, as Harbor does. Whether this machine can do what the values ask for is not known here.
"""

from __future__ import annotations

import os
import re
import tomllib
import unicodedata
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from openclaw_rl.errors import TaskError

MAX_BYTES = 1 << 20
_STEP_NAME = re.compile(r"""[^<>:"/\\|?*\x00-\x1f\x7f]{1,255}(?<![. ])""")
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[1-9¹²³]) *", re.IGNORECASE)
_SIZE = re.compile(r"([0-9.]+)([KMG])")
_MB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NetworkMode = Literal["no-network", "public", "allowlist"]
_YES_OR_NO: TypeAdapter[bool | None] = TypeAdapter(bool | None)
Tables = tuple[dict[str, JsonValue], ...]


def _parts_that_stay(path: str) -> str:
    if ".." in PurePosixPath(path).parts:
        raise ValueError(f"a path in the box goes without '..', got {path!r}")
    return path


def _without_detours(path: str | None) -> str | None:
    """As Docker does: `/app/` is `/app`."""
    if not path:
        return None
    if not path.startswith("/"):
        raise ValueError(f"workdir is an absolute path in the box, got {path!r}")
    return os.path.normpath(f"/{path.lstrip('/')}")


def _portable(name: str) -> str:
    if not _STEP_NAME.fullmatch(name) or not name.strip() or _DEVICE.fullmatch(name.partition(".")[0]):
        raise ValueError(f"the name of a step is the name of a folder on any system, got {name!r}")
    if len(name.encode()) > 255:
        raise ValueError("the name of a step has at most 255 bytes")
    return name


class _TomlTable(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Networked(_TomlTable):
    network_mode: NetworkMode | None = None
    allowed_hosts: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _hosts_belong_to_an_allowlist(self) -> Self:
        hosts_alone = self.network_mode is None and self.allowed_hosts is not None
        if hosts_alone or (self.network_mode != "allowlist" and self.allowed_hosts):
            raise ValueError('allowed_hosts goes with network_mode = "allowlist"')
        return self


class Author(_TomlTable):
    """Who wrote a task."""

    name: str
    email: str | None = None


class PackageTable(_TomlTable):
    """`[task]`: who a task is."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*$")]
    version: Annotated[str, Field(min_length=1)] | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()

    @field_validator("name")
    @classmethod
    def _has_no_dots_in_a_row(cls, name: str) -> str:
        if ".." in name:
            raise ValueError(f"a name without '..', got {name!r}")
        return name


class AgentTable(_Networked):
    """`[agent]`: how an attempt runs."""

    timeout_sec: Seconds | None = None
    user: str | int | None = None


class EnvironmentTable(_TomlTable):
    """`[environment]`: the box."""

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: Annotated[Literal["linux", "windows"], BeforeValidator(lambda v: v.lower() if isinstance(v, str) else v)] = (
        "linux"
    )
    cpus: int | None = None
    memory_mb: Annotated[int, Field(gt=0)] | None = None
    storage_mb: Annotated[int, Field(gt=0)] | None = None
    gpus: int | None = None
    tpu: dict[str, JsonValue] | None = None
    workdir: Annotated[str | None, AfterValidator(_without_detours)] = None
    env: dict[str, str] = Field(default_factory=dict)
    skills_dir: str | None = None
    healthcheck: dict[str, JsonValue] | None = None
    mcp_servers: Tables = ()
    network_mode: NetworkMode = "public"
    allowed_hosts: tuple[str, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _translate_older_keys(cls, raw: object) -> object:
        if not isinstance(raw, dict):
            return raw
        table = dict(raw)
        for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
            # Harbor reads an older size from a text alone.
            if isinstance(size := table.pop(old, None), str):
                megabytes = _megabytes(size)
                if table.setdefault(new, megabytes) != megabytes:
                    raise ValueError(f"{old} = {size!r} and {new} = {table[new]!r} contradict each other")
        internet = _YES_OR_NO.validate_python(table.pop("allow_internet", None))
        if internet is not None and table.get("allowed_hosts") is None:
            table.setdefault("network_mode", "public" if internet else "no-network")
        return table

    @model_validator(mode="after")
    def _hosts_belong_to_an_allowlist(self) -> Self:
        if self.network_mode != "allowlist" and self.allowed_hosts:
            raise ValueError('allowed_hosts goes with network_mode = "allowlist"')
        return self


def _megabytes(size: str) -> int:
    found = _SIZE.fullmatch(size.strip().upper())
    if found is None:
        raise ValueError(f"a size such as '512M' or '2G', got {size!r}")
    return int(float(found[1]) * _MB[found[2]])


class CollectTable(_TomlTable):
    """`[[verifier.collect]]`: a command after the agent has ended, before its work is taken away."""

    command: str
    service: str = "main"
    timeout_sec: Seconds = 60.0
    user: str | int | None = None


class VerifierTable(_Networked):
    """`[verifier]`: how an attempt is graded."""

    timeout_sec: Seconds = 600.0
    env: dict[str, str] = Field(default_factory=dict)
    user: str | int | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentTable | None = None
    collect: tuple[CollectTable, ...] = ()

    @model_validator(mode="after")
    def _has_an_environment_only_where_it_is_separate(self) -> Self:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError("[verifier.environment] contradicts environment_mode = 'shared'")
        return self

    @property
    def own_mode(self) -> Literal["shared", "separate"] | None:
        """What this table says, or implies, of where the verifier runs; None where it says nothing."""
        return self.environment_mode or (None if self.environment is None else "separate")


class Artifact(_TomlTable):
    """A path in the box that is part of what the agent delivers."""

    source: Annotated[str, AfterValidator(_parts_that_stay)]
    destination: str | None = None
    exclude: tuple[str, ...] = ()
    """Patterns of what below it is left out, as `tar --exclude` takes them."""
    service: str | None = None

    @field_validator("destination")
    @classmethod
    def _stays_in_its_folder(cls, path: str | None) -> str | None:
        if not path:
            return None
        parts = PurePosixPath(path).parts
        if path.startswith("/") or "\\" in path or not parts or ".." in parts or path.rstrip("/") == "manifest.json":
            raise ValueError(f"destination is a relative path that stays within its folder, got {path!r}")
        return path


def _named(artifact: object) -> object:
    return {"source": artifact} if isinstance(artifact, str) else artifact


Artifacts = tuple[Annotated[Artifact, BeforeValidator(_named)], ...]


class SolutionTable(_TomlTable):
    """`[solution]`: what the author's solution needs."""

    env: dict[str, str] = Field(default_factory=dict)


class StepTable(_TomlTable):
    """`[[steps]]`: one of several instructions that follow each other in one box."""

    name: Annotated[str, AfterValidator(_portable)]
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    min_reward: float | dict[str, float] | None = None
    healthcheck: dict[str, JsonValue] | None = None
    artifacts: Artifacts = ()


class OwnTable(_TomlTable):
    """`[metadata.openclaw_rl]`: what Harbor has no word for.

    `runs_on = "machine"`: the author's word that the programs of any Linux machine will do, whatever the image.
    `opening`: how an attempt begins, by a name that its track knows.
    """

    model_config = ConfigDict(extra="forbid")

    runs_on: Literal["image", "machine"] = "image"
    opening: str = ""


class _Metadata(_TomlTable):
    openclaw_rl: OwnTable = OwnTable()


class TaskToml(_TomlTable):
    """All of it."""

    schema_version: str = "1.4"
    task: PackageTable | None = None
    metadata: dict[str, object] = Field(default_factory=dict)
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: SolutionTable = SolutionTable()
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: tuple[StepTable, ...] = ()
    artifacts: Artifacts = ()

    @model_validator(mode="before")
    @classmethod
    def _translate_older_keys(cls, raw: object) -> object:
        if not isinstance(raw, dict) or "version" not in raw:
            return raw
        return {"schema_version": raw["version"]} | {key: value for key, value in raw.items() if key != "version"}

    @property
    def own(self) -> OwnTable:
        return _Metadata.model_validate(self.metadata).openclaw_rl

    @field_validator("steps")
    @classmethod
    def _have_names_of_their_own(cls, steps: tuple[StepTable, ...]) -> tuple[StepTable, ...]:
        if len({unicodedata.normalize("NFC", step.name).casefold() for step in steps}) < len(steps):
            raise ValueError("two steps have the same name, but for its case")
        return steps


def parse_task_toml(text: str, where: str) -> TaskToml:
    """`TaskError` names `where` the text is from, and every value that is wrong."""
    try:
        config = TaskToml.model_validate(tomllib.loads(text))
        _Metadata.model_validate(config.metadata)
        return config
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{where} is not TOML: {error}") from None
    except RecursionError:
        raise TaskError(f"{where} is nested too deeply") from None
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors(include_url=False, include_input=False)
        )
        raise TaskError(f"{where} is not a task of Harbor's: {wrong}") from None
