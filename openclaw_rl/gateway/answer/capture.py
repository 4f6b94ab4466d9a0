"""Samples one answer and keeps it token by token, exactly as the engine reported it.

Turns a rendered prompt into pieces (new ids, their log-probs, the events their text makes) and, at the end, into a
`Completion` and the assistant message as delivered. Stop strings are found here, because engines know ids only. When
the engine dies in the middle, sampling goes on from the ids so far as soon as it is back: the client sees a pause.
It knows nothing of sessions, HTTP or the store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from openclaw_rl.errors import EngineLost
from openclaw_rl.protocols import AnswerParser, Engine, Renderer
from openclaw_rl.types import (
    AnswerEvent,
    Completion,
    Delta,
    FinishReason,
    GenerateRequest,
    Message,
    ReasoningDelta,
    Request,
    Sampling,
    TextDelta,
    TokenLogprob,
    Tool,
    ToolArgumentsDelta,
    ToolCall,
    ToolCallStart,
    VersionSpan,
)

MAX_RESUMES = 5
"""How often one answer survives the death of the engine before it fails."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step of sampling added to an answer."""

    events: tuple[AnswerEvent, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None


class Capture:
    """One answer while it is sampled. Iterate `pieces` to its end, or stop early; then read what there is."""

    def __init__(
        self,
        *,
        renderer: Renderer,
        request: Request,
        tools: Sequence[Tool],
        request_id: str,
        prompt_ids: Sequence[int],
        prefill: str,
        sampling: Sampling,
        version: str | None,
        cache_salt: str = "",
        num_shareable: int = 0,
        conversation: str = "",
        exact: bool = False,
        party: str = "",
        weight: float = 1.0,
    ) -> None:
        self._party, self._weight = party, weight
        self._renderer = renderer
        self._request_id = request_id
        self._prompt_ids = list(prompt_ids)
        self.sampling = sampling
        self._version = version
        self._cache_salt = cache_salt
        self._num_shareable = num_shareable
        self._conversation = conversation
        self._exact = exact
        self._decoder = renderer.decoder()
        self._scanner = StopScanner(request.stop)
        self._parser: AnswerParser = renderer.parser(tools)
        self._one_call = not request.parallel_tool_calls
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._top_logprobs: list[tuple[TokenLogprob, ...]] = []
        self._spans: list[VersionSpan] = []
        self._answer = _AnswerBuilder()
        self._primed = tuple(self._parser.feed(prefill)) if prefill else ()
        self.finish_reason: FinishReason = "abort"
        self.num_cached_tokens = 0

    async def pieces(self, engine: Engine) -> AsyncGenerator[Piece, None]:
        """Streams the answer until it is finished. Closing this iterator cancels the sampling."""
        if self._primed:
            yield self._piece(self._primed, Delta(token_ids=(), logprobs=(), version=""))
        for attempt in range(MAX_RESUMES + 1):
            try:
                async with aclosing(self._deltas(engine)) as deltas:
                    async for delta in deltas:
                        yield self._take(delta)
                        if self.finish_reason != "abort":
                            break
            except EngineLost:
                if attempt == MAX_RESUMES:
                    raise
                continue
            break
        rest = self._flush()
        if rest.events:
            yield rest

    @property
    def completion(self) -> Completion:
        """The sampled tokens so far."""
        return Completion(
            token_ids=tuple(self._token_ids),
            logprobs=tuple(self._logprobs),
            finish_reason=self.finish_reason,
            version_spans=tuple(self._spans),
            top_logprobs=tuple(self._top_logprobs) if self.sampling.top_logprobs else None,
        )

    @property
    def message(self) -> Message:
        """The assistant message that the pieces so far add up to."""
        return self._answer.message

    async def _deltas(self, engine: Engine) -> AsyncGenerator[Delta, None]:
        remaining = self.sampling.max_tokens - len(self._token_ids)
        if remaining <= 0:
            yield Delta(token_ids=(), logprobs=(), version="", finish_reason="length")
            return
        request = GenerateRequest(
            request_id=self._request_id,
            token_ids=self._prompt_ids + self._token_ids,
            sampling=replace(self.sampling, max_tokens=remaining),
            stop_token_ids=self._renderer.stop_token_ids,
            version=self._version,
            cache_salt=self._cache_salt,
            num_shareable=self._num_shareable,
            conversation=self._conversation,
            exact=self._exact,
            party=self._party,
            weight=self._weight,
        )
        async with aclosing(engine.generate(request)) as deltas:
            async for delta in deltas:
                for part in _single_tokens(delta) if self._scanner or self._one_call else (delta,):
                    yield part

    def _take(self, delta: Delta) -> Piece:
        self._token_ids += delta.token_ids
        self._logprobs += delta.logprobs
        if delta.top_logprobs is not None:
            self._top_logprobs += delta.top_logprobs
        self._extend_span(delta)
        self.num_cached_tokens = self.num_cached_tokens or delta.num_cached_tokens
        text = sendable(self._decoder.push(delta.token_ids))
        if self._scanner:
            text, stopped = self._scanner.feed(text)
            if stopped:
                self.finish_reason = "stop"
        events = tuple(self._parser.feed(text)) if text else ()
        if self._one_call and self._parser.num_closed_calls:
            self.finish_reason = "stop"
        if delta.finish_reason is not None and self.finish_reason == "abort":
            self.finish_reason = delta.finish_reason
        return self._piece(events, delta)

    def _flush(self) -> Piece:
        """What the decoder, the scanner and the parser still held back."""
        stopped_by_text = bool(self._scanner and self._scanner.stopped)
        text = "" if stopped_by_text else sendable(self._decoder.finish())
        if self._scanner and not stopped_by_text:
            text, _ = self._scanner.feed(text)
            text += self._scanner.held
        events = (*(self._parser.feed(text) if text else ()), *self._parser.finish())
        piece = self._piece(events, Delta(token_ids=(), logprobs=(), version=""))
        if self.finish_reason == "stop" and self._answer.has_tool_calls:
            self.finish_reason = "tool_calls"
        return piece

    def _piece(self, events: tuple[AnswerEvent, ...], delta: Delta) -> Piece:
        self._answer.add(events)
        return Piece(events, delta.token_ids, delta.logprobs, delta.top_logprobs)

    def _extend_span(self, delta: Delta) -> None:
        if not delta.token_ids:
            return
        end = len(self._token_ids)
        if self._spans and self._spans[-1].version == delta.version:
            self._spans[-1] = replace(self._spans[-1], end=end)
        else:
            self._spans.append(VersionSpan(delta.version, end - len(delta.token_ids), end))


class StopScanner:
    """Cuts a growing text at the first stop string, holding back only what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self.held = ""
        self.stopped = False

    def __bool__(self) -> bool:
        return bool(self._stops)

    def feed(self, text: str) -> tuple[str, bool]:
        """The text that is certain now, and whether a stop string ended it."""
        self.held += text
        found = [at for at in (self.held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            certain, self.held = self.held[: min(found)], ""
            return certain, True
        keep = max((_overlap(self.held, stop) for stop in self._stops), default=0)
        cut = len(self.held) - keep
        certain, self.held = self.held[:cut], self.held[cut:]
        return certain, False


class _AnswerBuilder:
    """Adds events up to an assistant message."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCallStart] = []
        self._arguments: list[list[str]] = []

    def add(self, events: Iterable[AnswerEvent]) -> None:
        for event in events:
            match event:
                case TextDelta(text):
                    self._content.append(text)
                case ReasoningDelta(text):
                    self._reasoning.append(text)
                case ToolCallStart():
                    self._calls.append(event)
                    self._arguments.append([])
                case ToolArgumentsDelta(index, text):
                    self._arguments[index].append(text)

    @property
    def has_tool_calls(self) -> bool:
        return bool(self._calls)

    @property
    def message(self) -> Message:
        return Message(
            role="assistant",
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(
                ToolCall(id=call.id, name=call.name, arguments="".join(arguments))
                for call, arguments in zip(self._calls, self._arguments, strict=True)
            ),
        )


def sendable(text: str) -> str:
    """Without NUL, which no request may hold: a client sends an answer back as it got it."""
    return text.replace("\x00", "")


def _single_tokens(delta: Delta) -> Iterable[Delta]:
    """One delta per token, so that a stop string ends the answer at the very token that completes it."""
    last = len(delta.token_ids) - 1
    if last <= 0:
        yield delta
        return
    for i, (token, logprob) in enumerate(zip(delta.token_ids, delta.logprobs, strict=True)):
        yield replace(
            delta,
            token_ids=(token,),
            logprobs=(logprob,),
            top_logprobs=None if delta.top_logprobs is None else (delta.top_logprobs[i],),
            finish_reason=delta.finish_reason if i == last else None,
        )


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-size:]):
            return size
    return 0
