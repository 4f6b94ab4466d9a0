"""`GET /openapi.json`: every route, as OpenAPI describes it. Bodies are the very forms that requests are read with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from openclaw_rl.gateway.api import feedback, rollouts
from openclaw_rl.gateway.api.dialects.chat import CHAT
from openclaw_rl.gateway.api.dialects.messages import MESSAGES
from openclaw_rl.gateway.api.dialects.messages.request import CountBody
from openclaw_rl.gateway.api.dialects.responses import RESPONSES
from openclaw_rl.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One verb on one path. Whoever has no key is let in where it is `open`."""

    verb: Literal["get", "post"]
    path: str
    summary: str
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    open: bool = False

    @property
    def name(self) -> str:
        return f"{self.verb}{''.join(part.title() for part in self.path.replace('{', '').replace('}', '').split('/'))}"


OPERATIONS = (
    Operation(verb="post", path="/v1/chat/completions", summary="OpenAI Chat Completions", body=CHAT.body),
    Operation(verb="post", path="/v1/responses", summary="OpenAI Responses", body=RESPONSES.body),
    Operation(verb="get", path="/v1/responses/{id}", summary="A response that was kept"),
    Operation(verb="post", path="/v1/messages", summary="Anthropic Messages", body=MESSAGES.body),
    Operation(verb="post", path="/v1/messages/count_tokens", summary="Tokens of a prompt", body=CountBody),
    Operation(
        verb="post", path="/v1/feedback", summary="What a person says about one turn", body=feedback.FeedbackBody
    ),
    Operation(verb="post", path="/v1/sessions/{name}/done", summary="A session is over"),
    Operation(
        verb="post", path="/rollout", summary="A session is over, by its name in the body", body=feedback.EndingBody
    ),
    Operation(verb="get", path="/v1/rollouts", summary="A user's own turns as they settle", query=rollouts.Query),
    Operation(verb="get", path="/v1/models", summary="What is served", open=True),
    Operation(verb="get", path="/v1/models/{name}", summary="One of these"),
    Operation(verb="get", path="/healthz", summary="Whether the server runs", open=True),
    Operation(verb="get", path="/api/hello", summary="The same, where Claude Code looks", open=True),
    Operation(verb="get", path="/readyz", summary="Whether it can answer", open=True),
    Operation(verb="get", path="/metrics", summary="Counters for Prometheus", open=True),
    Operation(verb="get", path="/openapi.json", summary="This description", open=True),
)


def describe(operations: Iterable[Operation] = OPERATIONS) -> dict[str, Json]:
    """The whole description."""
    schemas: dict[str, Json] = {}
    paths: dict[str, dict[str, Json]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.verb] = _operation(operation, schemas)
    keys = {"bearer": {"type": "http", "scheme": "bearer"}, "x_api_key": _header_key("x-api-key")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "OpenClaw-RL", "version": "1", "description": "An agent that learns from who talks to it."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": keys},
    }


def _operation(operation: Operation, schemas: dict[str, Json]) -> dict[str, Json]:
    out: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "security": [] if operation.open else [{"bearer": []}, {"x_api_key": []}],
        "parameters": [_path_parameter(name) for name in _names(operation.path)],
        "responses": {"200": {"description": "the answer"}, "default": {"description": "an error, in its dialect"}},
    }
    if operation.query is not None:
        fields = operation.query.model_json_schema()["properties"]
        out["parameters"] += [{"name": name, "in": "query", "schema": schema} for name, schema in fields.items()]
    if operation.body is not None:
        out["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(operation.name, operation.body, schemas)}},
        }
    return out


def _schema(name: str, form: type[BaseModel], schemas: dict[str, Json]) -> Json:
    """Forms of several dialects have the same names inside: each goes by that of its operation too."""
    made = form.model_json_schema(ref_template=f"#/components/schemas/{name}.{{model}}")
    for inner, schema in made.pop("$defs", {}).items():
        schemas[f"{name}.{inner}"] = schema
    return made


def _names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _path_parameter(name: str) -> dict[str, Json]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _header_key(name: str) -> dict[str, Json]:
    return {"type": "apiKey", "in": "header", "name": name}
