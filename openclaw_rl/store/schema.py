"""The tables of the durable log, as SQLAlchemy Core sees them. `migrations.py` creates them; a test compares the two.

    session ─┬─ message      bodies of messages and tools, each once per session, under its digest
             └─ turn ─┬─ next_state
                      └─ feedback

A long conversation repeats itself: request n+1 holds all of request n, as messages and as ids. A turn therefore
keeps only what its parent does not have:

    the first `prompt_shared` ids of its prompt are those of the parent's prompt followed by the parent's answer;
    `prompt_ids` holds the rest. The first `messages_shared` messages are the parent's; `messages` names the rest.

So 200 turns cost what they say, not the square of it. `digest` covers the rebuilt whole and is checked when a turn
is read. Only a complete turn is shared from: it never changes again, while an aborted one may be replaced.

Small columns stand first: SQLite then finds them without walking the pages of the large ones.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

metadata = MetaData()

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
    Column("user", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("label", Text, nullable=False),
    Column("revoked_at", Double),
    Index("api_key_digest", "digest", unique=True),
)

session = Table(
    "session",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("last_seen_at", Double, nullable=False),
    Column("key", Text),
    Column("closed_at", Double),
    Column("opted_out", Boolean, nullable=False),
    Index("session_user_key", "user", "key", unique=True),
)

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
)

next_state = Table(
    "next_state",
    metadata,
    Column("session", Text, primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("arrived_at", Double, nullable=False),
    Column("messages", LargeBinary, nullable=False),
    ForeignKeyConstraint(["session", "index"], ["turn.session", "turn.index"]),
)

feedback = Table(
    "feedback",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("session", Text, nullable=False),
    Column("index", Integer, nullable=False),
    Column("user", Text, nullable=False),
    Column("given_at", Double, nullable=False),
    Column("score", Integer),
    Column("text", Text, nullable=False),
    ForeignKeyConstraint(["session", "index"], ["turn.session", "turn.index"]),
    Index("feedback_turn", "session", "index"),
)
