"""What Anthropic's own library makes of the answers that the Messages dialect writes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import anthropic
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.gateway.answer.capture import Piece
from openclaw_rl.gateway.api.dialects.messages.answer import MessagesStream, whole
from openclaw_rl.gateway.api.dialects.spoken import Envelope
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import (
    AnswerEvent,
    Completion,
    FinishReason,
    Message,
    ReasoningDelta,
    Request,
    Sampling,
    TextDelta,
    ToolArgumentsDelta,
    ToolCall,
    ToolCallStart,
    VersionSpan,
    events_of,
)

ENVELOPE = Envelope(token="0f", turn_id="s.0", created=1, model="mine", version="v0")
CALL = ToolCallStart(0, "call1", "run")


@dataclass(frozen=True)
class Known:
    """An answer as it stands."""

    answers: Sequence[tuple[Message, Completion]]
    num_prompt_tokens: int = 20
    num_cached_tokens: int = 0


def completion(token_ids: Sequence[int] = (), finish: FinishReason = "stop") -> Completion:
    spans = (VersionSpan("v0", 0, len(token_ids)),) if token_ids else ()
    return Completion(
        token_ids=tuple(token_ids), logprobs=(-1.0,) * len(token_ids), finish_reason=finish, version_spans=spans
    )


def known(message: Message | None = None, finish: FinishReason = "stop") -> Known:
    return Known([(message or Message(role="assistant"), completion((1, 2, 3), finish))])


def request(*stop: str) -> Request:
    messages = (Message(role="user", content="hi"),)
    return Request(messages=messages, sampling=Sampling(max_tokens=5), stop=stop)


class Library:
    """Anthropic's client, which hears what it is told to. Making one takes longer than all that is asked of it."""

    def __init__(self) -> None:
        self.body = b""
        http = anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(self._answer))
        self.client = anthropic.Anthropic(api_key="k", base_url="http://nowhere", http_client=http)

    def _answer(self, _: httpx2.Request) -> httpx2.Response:
        kind = "text/event-stream" if self.body.startswith(b"event: ") else "application/json"
        return httpx2.Response(200, headers={"content-type": kind}, content=self.body)


library = cache(Library)


def heard(body: bytes) -> anthropic.types.Message:
    """The message that the library builds of a body, whole or streamed."""
    library().body = body
    messages = library().client.messages
    if not body.startswith(b"event: "):
        return messages.create(model="m", max_tokens=1, messages=[])
    with messages.stream(model="m", max_tokens=1, messages=[]) as events:
        return events.get_final_message()


def streamed(renderer: Renderer, answer: Known, *pieces: Sequence[AnswerEvent], stop: Sequence[str] = ()) -> bytes:
    writer = MessagesStream(ENVELOPE, answer, request(*stop), renderer)
    written = [writer.piece(0, Piece(tuple(events), (), (), None)) for events in pieces]
    return b"".join([writer.begin(), *written, writer.end()])


def content(message: anthropic.types.Message) -> list[tuple[str, object]]:
    out: list[tuple[str, object]] = []
    for block in message.content:
        match block.type:
            case "text":
                out.append(("text", block.text))
            case "thinking":
                out.append(("thinking", block.thinking))
            case "tool_use":
                out.append((f"{block.id} {block.name}", block.input))
    return out


def test_a_whole_answer_and_its_stream_are_one_message(renderer: Renderer) -> None:
    calls = (
        ToolCall(id="call1", name="run", arguments='{"a": [1, {"b": "ö"}]}'),
        ToolCall(id="call2", name="walk", arguments="{}"),
    )
    message = Message(role="assistant", content="Well.", reasoning="hm", tool_calls=calls)
    answer = known(message, "tool_calls")
    stream = heard(streamed(renderer, answer, *([event] for event in events_of(message))))
    once = heard(whole(ENVELOPE, answer, request(), renderer))
    assert content(stream) == content(once)
    assert content(once) == [
        ("thinking", "hm"),
        ("text", "Well."),
        ("call1 run", {"a": [1, {"b": "ö"}]}),
        ("call2 walk", {}),
    ]
    assert stream.stop_reason == once.stop_reason == "tool_use"
    assert (stream.id, stream.model) == (once.id, once.model) == ("msg_0f", "mine")
    thoughts = [block for message in (stream, once) for block in message.content if block.type == "thinking"]
    assert thoughts[0].signature
    assert thoughts[0].signature == thoughts[1].signature


def test_a_signature_is_that_of_its_thought(renderer: Renderer) -> None:
    first, other = (
        heard(streamed(renderer, known(), [ReasoningDelta(a)], [ReasoningDelta(b)], [TextDelta("x")])).content[0]
        for a, b in (("one", "two"), ("one", "three"))
    )
    assert first.type == other.type == "thinking"
    assert first.thinking == "onetwo"
    assert first.signature != other.signature


def test_pieces_of_one_kind_are_one_block(renderer: Renderer) -> None:
    pieces: list[list[AnswerEvent]] = [
        [TextDelta("a"), TextDelta("b")],
        [],
        [TextDelta("c")],
        [CALL],
        [ToolArgumentsDelta(0, '{"a"')],
    ]
    pieces += [[ToolArgumentsDelta(0, ":1}")], [TextDelta("d")], [ReasoningDelta("e")], [TextDelta("f")]]
    message = heard(streamed(renderer, known(), *pieces))
    assert content(message) == [
        ("text", "abc"),
        ("call1 run", {"a": 1}),
        ("text", "d"),
        ("thinking", "e"),
        ("text", "f"),
    ]


@pytest.mark.parametrize(
    "arguments", ["", "{", '{"a": x}', "[1]", "5", '"{}"', "null", '{"a": NaN}', '{"a": "\\ud800"}']
)
def test_arguments_that_are_no_object_arrive_as_an_empty_one(renderer: Renderer, arguments: str) -> None:
    call = ToolCall(id="call1", name="run", arguments=arguments)
    message = Message(role="assistant", tool_calls=(call,))
    for body in (
        whole(ENVELOPE, known(message), request(), renderer),
        streamed(renderer, known(message), [CALL], *([ToolArgumentsDelta(0, c)] for c in arguments)),
    ):
        assert content(heard(body)) == [("call1 run", {})]


EVENTS = st.one_of(
    st.builds(TextDelta, st.text(min_size=1, max_size=3)),
    st.builds(ReasoningDelta, st.text(min_size=1, max_size=3)),
    st.just(None),
)


@given(drawn=st.lists(EVENTS, max_size=12))
def test_whatever_the_order_nothing_is_lost(renderer: Renderer, drawn: list[TextDelta | ReasoningDelta | None]) -> None:
    """None stands for one more call."""
    numbers = itertools.count()
    events = [event or ToolCallStart(next(numbers), "call1", "run") for event in drawn]
    message = heard(streamed(renderer, known(), *([event] for event in events)))
    joined: list[tuple[str, object]] = []
    for event in events:
        kind = {TextDelta: "text", ReasoningDelta: "thinking"}.get(type(event), "call1 run")
        value = {} if isinstance(event, ToolCallStart) else event.text
        if joined and joined[-1][0] == kind and isinstance(value, str):
            joined[-1] = (kind, f"{joined[-1][1]}{value}")
        else:
            joined.append((kind, value))
    assert content(message) == joined


@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_are_no_input_tokens(renderer: Renderer, stream: bool) -> None:
    answer = Known([(Message(role="assistant", content="x"), completion((1, 2, 3)))], 20, 15)
    body = streamed(renderer, answer, [TextDelta("x")]) if stream else whole(ENVELOPE, answer, request(), renderer)
    usage = heard(body).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (5, 15, 3)


@pytest.mark.parametrize(
    ("said", "stop", "expected"),
    [
        ("one two three four", ("our", " four", "five"), " four"),
        ("one two three four", ("three four", "three"), "three"),
        ("one two three four", ("five",), None),
        ("one two three four", (), None),
        ("naïve 🙂 END", ("END",), "END"),
        ("one two\x00three", ("twothree",), "twothree"),
    ],
)
def test_the_stop_sequence_is_found_in_what_was_sampled(
    renderer: Renderer, said: str, stop: tuple[str, ...], expected: str | None
) -> None:
    answer = Known([(Message(role="assistant", content="x"), completion(renderer.encode(said)))])
    for body in (whole(ENVELOPE, answer, request(*stop), renderer), streamed(renderer, answer, [], stop=stop)):
        message = heard(body)
        assert message.stop_sequence == expected
        assert message.stop_reason == ("end_turn" if expected is None else "stop_sequence")


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_tokens"), ("tool_calls", "tool_use")])
def test_only_a_stop_is_one(renderer: Renderer, finish: FinishReason, reason: str) -> None:
    answer = Known([(Message(role="assistant"), completion(renderer.encode("the END"), finish))])
    message = heard(whole(ENVELOPE, answer, request("END"), renderer))
    assert (message.stop_reason, message.stop_sequence) == (reason, None)


def test_an_error_in_the_middle_is_raised(renderer: Renderer) -> None:
    writer = MessagesStream(ENVELOPE, known(), request(), renderer)
    body = writer.begin() + writer.piece(0, Piece((TextDelta("x"),), (), (), None)) + writer.ping
    with pytest.raises(anthropic.APIStatusError, match="the engine is away") as error:
        heard(body + writer.error("the engine is away", "engine_unavailable"))
    assert error.value.type == "api_error"
