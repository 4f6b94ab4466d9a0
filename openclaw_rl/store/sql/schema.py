"""The tables of the durable log, as SQLAlchemy Core sees them. A new PostgreSQL store is created from this page; for
SQLite `sqlite/migrations.py` spells it out.

    episode ── session       the sessions of one attempt at a task; most sessions have none

    session ─┬─ message      bodies of messages and tools, each once per session, under its digest
             └─ turn ─┬─ next_state    its arrival makes a `task` for the judge, or reopens it
                      ├─ feedback      so does this
                      ├─ judgement     one for each count of evidence; makes a `task` for credit
                      ├─ credit        what became of the newest judgement
                      └─ sample        what a step learns from; ids and log-probs stay in the turn

A long conversation repeats itself: request n+1 holds all of request n, as messages and as ids. A turn therefore
keeps only what its parent does not have:

    the first `prompt_shared` ids of its prompt are those of the parent's prompt followed by the parent's answer;
    `prompt_ids` holds the rest. The first `messages_shared` messages are the parent's; `messages` names the rest.

So 200 turns cost what they say, not the square of it. `digest` covers the rebuilt whole and is checked when a turn
is read. Only a complete turn is shared from: it never changes again, while an aborted one may be replaced.

Small columns stand first: SQLite then finds them without walking the pages of the large ones.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    MetaData,
    Table,
    text,
)
from sqlalchemy import Integer as SqliteInteger
from sqlalchemy import Text as SqliteText

metadata = MetaData()

Integer = SqliteInteger().with_variant(BigInteger(), "postgresql")
"""SQLite's counts as far as any; PostgreSQL's ends at 2**31."""

Text = SqliteText().with_variant(SqliteText(collation="C"), "postgresql")
"""By bytes, as in SQLite: an order of a language's own would change with the system's libraries, and break indexes."""

_OWNER = {"owner": True}
"""Of a column: whose the row is. Once written it never changes (`upsert.py`)."""


def _only(condition: str) -> dict[str, Any]:
    """Of an index: the rows that it holds."""
    return {f"{dialect}_where": text(condition) for dialect in ("sqlite", "postgresql")}


meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

api_key = Table(
    "api_key",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user", Text, nullable=False, info=_OWNER),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("label", Text, nullable=False),
    Column("revoked_at", Double),
    Column("terms", Text, nullable=False, server_default="{}"),
    Index("api_key_digest", "digest", unique=True),
)

episode = Table(
    "episode",
    metadata,
    Column("id", Text, primary_key=True),
    Column("environment", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("group", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("group_size", Integer, nullable=False),
    Column("reward", Double),
    Column("failure", Text, nullable=False, server_default=""),
    Column("ended_at", Double),
    Index("episode_group", "group"),
)
"""An attempt at a task, and its outcome once `ended_at` is known."""

session = Table(
    "session",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user", Text, nullable=False, info=_OWNER),
    Column("client", Text, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("last_seen_at", Double, nullable=False),
    Column("key", Text),
    Column("closed_at", Double),
    Column("opted_out", Boolean, nullable=False),
    Column("episode", Text, ForeignKey("episode.id")),
    Column("closed_seq", Integer),
    Index("session_user_key", "user", "key", unique=True),
    Index("session_episode", "episode", **_only("episode IS NOT NULL")),
    Index("session_closed", "closed_seq", unique=True, **_only("closed_seq IS NOT NULL")),
)
"""`closed_seq` numbers the ends of sessions in the order in which they were committed, whatever the clock said. The
last number stands in `meta`: it is not given again when its session is deleted."""

CLOSED = "closed_seq"
"""The name in `meta`."""

message = Table(
    "message",
    metadata,
    Column("session", Text, ForeignKey("session.id"), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

turn = Table(
    "turn",
    metadata,
    Column("session", Text, ForeignKey("session.id"), primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer),
    Column("kind", Text, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("delivered", Boolean, nullable=False),
    Column("skip", Text),
    Column("finish_reason", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("finished_at", Double, nullable=False),
    Column("request_digest", Text, nullable=False),
    Column("chain", Text, nullable=False),
    Column("num_prompt", Integer, nullable=False),
    Column("num_prefill", Integer, nullable=False),
    Column("num_sampled", Integer, nullable=False),
    Column("prompt_shared", Integer, nullable=False),
    Column("messages_shared", Integer, nullable=False),
    Column("versions", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    Column("dialect", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("sampling", Text, nullable=False),
    Column("stop", Text, nullable=False),
    Column("version_ends", LargeBinary, nullable=False),
    Column("tools", LargeBinary, nullable=False),
    Column("messages", LargeBinary, nullable=False),
    Column("token_ids", LargeBinary, nullable=False),
    Column("logprobs", LargeBinary, nullable=False),
    Column("top_logprobs", LargeBinary),
    Column("prompt_ids", LargeBinary, nullable=False),
    Column("label", Text, nullable=False),
    Column("retrievable", Boolean, nullable=False, server_default="1"),
)

next_state = Table(
    "next_state",
    metadata,
    Column("session", Text, primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("arrived_at", Double, nullable=False),
    Column("messages", LargeBinary, nullable=False),
    Column("seq", Integer, nullable=False, server_default="0"),
    ForeignKeyConstraint(["session", "index"], ["turn.session", "turn.index"]),
    Index("next_state_seq", "seq", unique=True),
)
"""`seq` numbers the next states in the order in which they were committed; the writer assigns it."""

feedback = Table(
    "feedback",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("session", Text, nullable=False),
    Column("index", Integer, nullable=False),
    Column("user", Text, nullable=False, info=_OWNER),
    Column("given_at", Double, nullable=False),
    Column("score", Integer),
    Column("text", Text, nullable=False),
    ForeignKeyConstraint(["session", "index"], ["turn.session", "turn.index"]),
    Index("feedback_turn", "session", "index"),
)

task = Table(
    "task",
    metadata,
    Column("stage", Text, primary_key=True),
    Column("session", Text, primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("wanted", Integer, nullable=False),
    Column("done", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("token", Integer, nullable=False),
    Column("due_at", Double, nullable=False),
    Column("owner", Text, nullable=False, server_default=""),
    ForeignKeyConstraint(["session", "index"], ["turn.session", "turn.index"]),
    Index("task_due", "stage", "due_at", **_only("wanted > done")),
)
"""Work on a turn: open while `wanted`, the evidence there is, exceeds `done`. A lease moves `due_at` to its end
and names its `owner`; nobody holds a task without one."""

judgement = Table(
    "judgement",
    metadata,
    Column("session", Text, primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("num_evidence", Integer, primary_key=True, autoincrement=False),
    Column("judge", Text, nullable=False),
    Column("prompt_version", Text, nullable=False),
    Column("judged_at", Double, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("score", Integer),
    Column("reason", Text, nullable=False),
    Column("hints", Text, nullable=False),
    Column("votes", Text, nullable=False),
    Column("reward", Double),
    ForeignKeyConstraint(["session", "index"], ["turn.session", "turn.index"]),
)
"""`reward` is the judge's own number, where it gave more than a vote."""

credit = Table(
    "credit",
    metadata,
    Column("session", Text, primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("num_evidence", Integer, nullable=False),
    Column("rule", Text, nullable=False),
    Column("credited_at", Double, nullable=False),
    Column("reward", Double),
    Column("skip", Text),
    ForeignKeyConstraint(["session", "index"], ["turn.session", "turn.index"]),
)

sample = Table(
    "sample",
    metadata,
    Column("id", Text, primary_key=True),
    Column("line", Text, nullable=False, info=_OWNER),
    Column("kind", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("index", Integer, nullable=False),
    Column("prompt_index", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("reward", Double, nullable=False),
    Column("w_rl", Double, nullable=False),
    Column("w_opd", Double, nullable=False),
    Column("on_policy", Boolean, nullable=False),
    Column("step", Integer),
    Column("loss_mask", LargeBinary, nullable=False),
    Column("advantages", LargeBinary, nullable=False),
    Column("candidates", LargeBinary, nullable=False),
    Column("num_discarded", Integer, nullable=False, server_default="0"),
    Column("is_returned", Boolean, nullable=False, server_default="0"),
    Column("response_ids", LargeBinary),
    ForeignKeyConstraint(["session", "index"], ["turn.session", "turn.index"]),
    Index("sample_turn", "session", "index"),
    Index("sample_waiting", "line", "created_at", **_only("step IS NULL")),
)
"""`step` is the step that learned from it; none did as long as it is NULL. A step that is discarded gives its samples
back, to be tried one by one: `num_discarded` counts. One that is undone, or that nothing which answers
stands on, gives them back too: `is_returned`. `response_ids` are a demonstration's own; other samples have those of
their turn."""

baseline = Table(
    "baseline",
    metadata,
    Column("line", Text, primary_key=True),
    Column("turn_kind", Text, primary_key=True),
    Column("mean", Double, nullable=False),
    Column("count", Integer, nullable=False),
)

step = Table(
    "step",
    metadata,
    Column("line", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("planned_at", Double, nullable=False),
    Column("finished_at", Double),
    Column("seed", Integer, nullable=False),
    Column("parent", Integer, nullable=False),
    Column("sample_ids", Text, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("replayed_ids", Text, nullable=False, server_default="[]"),
    Column("num_anchors", Integer, nullable=False, server_default="0"),
)
"""A step that is planned has its samples for itself; it is taken, again if need be, before another one is planned."""

version = Table(
    "version",
    metadata,
    Column("line", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("gate", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("model", Text),
    Column("weights", Text),
)
"""`weights` is the URI of its weights, NULL once they were removed; `sha256` is what they hashed to.
`model` is what it was trained on, as `turn.model` names it; NULL in old rows where nobody knows."""

shared = MetaData()
"""What only a store that several processes write has beside the tables above."""

change = Table(
    "change",
    shared,
    Column("seq", Integer, Identity(always=True), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("at", Double, nullable=False),
    Index("change_at", "at"),
)
"""What one process changed and the others keep in memory: a session, one that is gone, the keys. `seq` is the order of
the commits; what was said a day ago is deleted."""

claim = Table(
    "claim",
    shared,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("token", Integer, nullable=False),
    Column("until", Double, nullable=False),
)
"""What one process does at a time, such as learning on a line. Whoever takes it over gets a higher token."""

place = Table(
    "place",
    shared,
    Column("session", Text, primary_key=True),
    Column("next_index", Integer, nullable=False),
)
"""Which number the next turn of a session gets, whichever process answers it."""
