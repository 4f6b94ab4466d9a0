"""Every noun of the pipeline, frozen and validated at birth.

The way of the data: a `Request` arrives, belongs to a `Session`, is answered by a `Completion`, and the two
together are a `Turn`. What arrives afterwards is the turn's `NextState` or explicit `Feedback`. A judge makes a
`Judgement` of it, and that becomes a `Sample` or a `Skip` with its reason. This package
knows no HTTP, no SQL, no torch and no tokenizer: token ids are numbers here.

Worked example, two turns of one session on the base weights `v0`:

    Turn(session="s-5f1c", index=0, parent=None, prompt_ids=(1, 9690, ...), completion=Completion(
        token_ids=(19556, 17, 2), logprobs=(-0.41, -0.02, -0.01), finish_reason="stop",
        version_spans=(VersionSpan("v0", 0, 3),)))
    Turn(session="s-5f1c", index=1, parent=0, prompt_ids=(1, 9690, ..., 19556, 17, 2, 198, 1, ...), ...)

The second prompt starts with the first prompt followed by the first completion, id for id.
"""

from __future__ import annotations

from openclaw_rl.types.engine import (
    BACKGROUND,
    BASE_VERSION,
    PERSON,
    Delta,
    EngineState,
    GenerateRequest,
    Publication,
    Scored,
    ScoreRequest,
    TokenLogprob,
    VersionSpan,
)
from openclaw_rl.types.learning import (
    SIDE_ROLES_ONLY,
    Baseline,
    Candidate,
    Credit,
    Evidence,
    JudgedTurn,
    Judgement,
    Lease,
    Outcome,
    Question,
    Sample,
    SampleKind,
    Score,
    Stage,
    Verdict,
    Vote,
    Weights,
    sample_id,
)
from openclaw_rl.types.messages import (
    ROLES,
    AnswerEvent,
    Json,
    Message,
    ReasoningDelta,
    Request,
    Role,
    Sampling,
    TextDelta,
    Tool,
    ToolArgumentsDelta,
    ToolCall,
    ToolCallStart,
    ToolChoice,
    events_of,
)
from openclaw_rl.types.turns import (
    LOCAL_USER,
    ApiKey,
    Completion,
    Feedback,
    FinishReason,
    NextState,
    Session,
    SessionOutline,
    Skip,
    Turn,
    TurnKind,
    TurnOutline,
    TurnRecord,
    split_turn_id,
    turn_id,
)

__all__ = [
    "BACKGROUND",
    "BASE_VERSION",
    "LOCAL_USER",
    "PERSON",
    "ROLES",
    "SIDE_ROLES_ONLY",
    "AnswerEvent",
    "ApiKey",
    "Baseline",
    "Candidate",
    "Completion",
    "Credit",
    "Delta",
    "EngineState",
    "Evidence",
    "Feedback",
    "FinishReason",
    "GenerateRequest",
    "Json",
    "JudgedTurn",
    "Judgement",
    "Lease",
    "Message",
    "NextState",
    "Outcome",
    "Publication",
    "Question",
    "ReasoningDelta",
    "Request",
    "Role",
    "Sample",
    "SampleKind",
    "Sampling",
    "Score",
    "ScoreRequest",
    "Scored",
    "Session",
    "SessionOutline",
    "Skip",
    "Stage",
    "TextDelta",
    "TokenLogprob",
    "Tool",
    "ToolArgumentsDelta",
    "ToolCall",
    "ToolCallStart",
    "ToolChoice",
    "Turn",
    "TurnKind",
    "TurnOutline",
    "TurnRecord",
    "Verdict",
    "VersionSpan",
    "Vote",
    "Weights",
    "events_of",
    "sample_id",
    "split_turn_id",
    "turn_id",
]
