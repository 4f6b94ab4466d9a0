"""The Agent Trajectory Interchange Format, versions 1.0 to 1.8, as Harbor checks it. Unknown keys are refused.

https://github.com/laude-institute/harbor (docs: ATIF). Our own notes stand under `extra`, as `openclaw_rl`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator, model_validator

from openclaw_rl.envs.trajectories.parsing import OfferedFunction, TextPart
from openclaw_rl.envs.trajectories.recording import SessionNotes, TurnNotes
from openclaw_rl.types import Json, Message, Tool
from openclaw_rl.types.checks import require

SCHEMA_VERSION = "ATIF-v1.8"
_VERSIONS = r"^ATIF-v1\.[0-8]$"
_OF_AGENTS = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")


class _Atif(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Extra(BaseModel):
    """Others' notes may stand beside ours."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNotes:
    """`message`: what a step cannot say exactly. Of a turn: its notes, what its request has otherwise than the steps
    before it say, by position, and its tools where they are not the trajectory's."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    message: Message | None = None
    turn: TurnNotes | None = None
    replaced: Mapping[int, Message] | None = None
    tools: tuple[Tool, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNotes:
    """The arguments as they were sampled, where the object says them otherwise."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    arguments: str


class RootExtra(_Extra):
    openclaw_rl: SessionNotes | None = None


class StepExtra(_Extra):
    openclaw_rl: StepNotes | None = None


class CallExtra(_Extra):
    openclaw_rl: CallNotes | None = None


class AtifToolCall(_Atif):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Json]
    extra: CallExtra | None = None


class AtifSubagent(_Atif):
    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None
    extra: dict[str, Json] | None = None


class AtifResult(_Atif):
    source_call_id: str | None = None
    content: str | list[TextPart] | None = None
    subagent_trajectory_ref: list[AtifSubagent] | None = None
    extra: StepExtra | None = None


class AtifObservation(_Atif):
    results: list[AtifResult]


class AtifMetrics(_Atif):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: FiniteFloat | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[FiniteFloat] | None = None
    extra: dict[str, Json] | None = None


class AtifStep(_Atif):
    step_id: int = Field(ge=1)
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    message: str | list[TextPart]
    reasoning_content: str | None = None
    tool_calls: list[AtifToolCall] | None = None
    observation: AtifObservation | None = None
    metrics: AtifMetrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = Field(default=None, ge=0)
    extra: StepExtra | None = None

    @field_validator("timestamp")
    @classmethod
    def _is_a_time(cls, value: str | None) -> str | None:
        if value is not None:
            datetime.fromisoformat(value)
        return value

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        for name in _OF_AGENTS if self.source != "agent" else ():
            require(getattr(self, name) is None, f"{name} belongs to a step of the agent, not of the {self.source}")
        if self.source == "agent" and self.llm_call_count == 0:
            is_quiet = self.metrics is None and self.reasoning_content is None
            require(is_quiet, "where llm_call_count is 0 there are no metrics and no reasoning")
        called = {call.tool_call_id for call in self.tool_calls or ()}
        for result in self.observation.results if self.observation is not None else ():
            answered = result.source_call_id
            require(
                answered is None or answered in called, f"a result answers {answered!r}, which the step never called"
            )
        return self

    @property
    def is_turn(self) -> bool:
        """Whether the model answered here: not in what was copied, nor in what was done without asking it."""
        return self.source == "agent" and not self.is_copied_context and self.llm_call_count != 0

    @property
    def notes(self) -> StepNotes:
        return (self.extra.openclaw_rl if self.extra is not None else None) or StepNotes()


class AtifAgent(_Atif):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[OfferedFunction] | None = None
    extra: dict[str, Json] | None = None


class AtifTotals(_Atif):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: FiniteFloat | None = None
    total_steps: int | None = Field(default=None, ge=0)
    extra: dict[str, Json] | None = None


class AtifTrajectory(_Atif):
    schema_version: str = Field(pattern=_VERSIONS)
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: AtifAgent
    steps: list[AtifStep] = Field(min_length=1)
    notes: str | None = None
    final_metrics: AtifTotals | None = None
    continued_trajectory_ref: str | None = None
    extra: RootExtra | None = None
    subagent_trajectories: list[AtifTrajectory] | None = None

    @model_validator(mode="after")
    def _counts_its_steps(self) -> Self:
        for number, step in enumerate(self.steps, start=1):
            require(step.step_id == number, f"step {number} is called {step.step_id}; steps are counted from 1")
        names = [each.trajectory_id for each in self.subagent_trajectories or ()]
        require(None not in names and len(set(names)) == len(names), "embedded trajectories need an id each")
        return self
