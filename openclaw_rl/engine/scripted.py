"""Prompt ids -> a scripted answer, deterministic to the last log-prob. The shipped fake of an engine.

For tests, examples and `--dry-run`: a real tokenizer, real streaming, cancellation and limits, but no model. The
answer to a prompt is the first rule whose pattern is found in what the user said last (all user messages after the
last answer: agents put notes of their own behind a person's words), or an echo of that. It depends on nothing else: a
prompt that already ends inside the answer (because the first engine died) is continued at that very token, with the
log-probs that an uninterrupted answer would have had. `score` gives the same ones. A version is a label: its folder is
compared with its checksum where there is one, and changes nothing else.

Runs in the process that asks (`ScriptedEngine` is an `Engine`) or as a worker:

    python -m openclaw_rl.engine.scripted --socket PATH --tokenizer FOLDER --options '{"tokens_per_s": 50}'

Reads ChatML prompts only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, dropwhile, takewhile
from pathlib import Path

from tokenizers import Tokenizer

from openclaw_rl.engine.worker.admission import admit, admit_publication, admit_retirement, admit_score, verify
from openclaw_rl.engine.worker.process import run_worker
from openclaw_rl.errors import ConfigError, EngineLost, ModelError
from openclaw_rl.types import (
    BASE_VERSION,
    Delta,
    EngineState,
    GenerateRequest,
    Json,
    Publication,
    Scored,
    ScoreRequest,
    TokenLogprob,
)

_MAX_TOKENS_A_DELTA = 32
_MAX_READ_IDS = 4096  # of a user message: decoding 76k ids takes 20 ms, more than everything else together
_ECHO_CHARACTERS = 200
_GROUP = re.compile(r"\\(\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedAnswer:
    r"""What to answer when `match` (a regular expression) is found in what the user said last.

    `\1` in `reply` stands for the pattern's first group, and so on. With `fail_after_tokens` the worker kills itself
    after that many tokens of such an answer, once for each socket path (in process: raises `EngineLost`, once).
    """

    match: str
    reply: str
    fail_after_tokens: int | None = None

    def __post_init__(self) -> None:
        try:
            num_groups = re.compile(self.match).groups
        except re.error as error:
            raise ConfigError(f"match {self.match!r} is no regular expression: {error}") from error
        if any(int(number) > num_groups for number in _GROUP.findall(self.reply)):
            raise ConfigError(f"reply {self.reply!r} names a group that match {self.match!r} does not have")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedOptions:
    """The script. `tokens_per_s` 0 is as fast as possible; `versions` are there from the start, the last one live.

    `first_token_delay_s` is also how long a score takes.
    """

    replies: tuple[ScriptedAnswer, ...] = ()
    tokens_per_s: float = 0.0
    first_token_delay_s: float = 0.0
    context_window: int = 131072
    versions: tuple[str, ...] = (BASE_VERSION,)

    @classmethod
    def from_json(cls, raw: Json) -> ScriptedOptions:
        """Options as the config file and the command line write them."""
        known = [field.name for field in fields(cls)]
        if not isinstance(raw, dict) or not set(raw) <= set(known):
            raise ConfigError(f"the scripted engine's options are {', '.join(known)}; got {raw!r}")
        try:
            return cls(
                **{
                    **raw,
                    "replies": tuple(ScriptedAnswer(**reply) for reply in raw.get("replies", ())),
                    "versions": tuple(raw.get("versions", (BASE_VERSION,))),
                }
            )
        except TypeError as error:
            raise ConfigError(f"the scripted engine's options are malformed: {error}") from error


class ScriptedEngine:
    """An `Engine` that follows a script. `failed_marker` is the file that remembers a scripted death."""

    def __init__(self, tokenizer: Path, options: ScriptedOptions, *, failed_marker: Path | None = None) -> None:
        file = tokenizer / "tokenizer.json"
        if not file.is_file():
            raise ModelError(f"{file} is missing; name a model folder with a tokenizer.json")
        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.encode_special_tokens = True  # an echoed "<|im_end|>" stays plain text
        start, end = (self._tokenizer.token_to_id(text) for text in ("<|im_start|>", "<|im_end|>"))
        if start is None or end is None:
            raise ModelError(f"{file} has no <|im_start|> and <|im_end|>; the scripted engine reads ChatML only")
        self._start, self._end = start, end
        self._options = options
        self._rules = [(re.compile(reply.match), reply) for reply in options.replies]
        self._failed_marker = failed_marker
        self._failed = False
        self._publishing = asyncio.Lock()
        self._sha256s = dict.fromkeys(options.versions, "")
        self._state = EngineState(
            model=tokenizer.name,
            versions=options.versions,
            live_version=options.versions[-1],
            context_window=options.context_window,
            vocab_size=1 + max(self._tokenizer.get_vocab().values()),  # ids may have gaps
            device="none",
            dtype="none",
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """The scripted answer, token by token at `tokens_per_s`, in growing pieces where that is 0."""
        version, max_tokens = admit(request, self._state)
        answer, rule = self._answer(request.token_ids)
        stops = {self._end, *request.stop_token_ids}
        num_wanted = 1 + next(i for i, token in enumerate(answer) if token in stops)
        num_tokens = min(num_wanted, max_tokens)
        dies_at = rule.fail_after_tokens if rule is not None else None
        began_at = asyncio.get_running_loop().time() + self._options.first_token_delay_s
        sent = 0
        while sent < num_tokens:
            if sent == dies_at:
                self._die()
            end = min(await self._num_due(sent, began_at), num_tokens)
            if dies_at is not None and sent < dies_at:
                end = min(end, dies_at)
            first_position = len(request.token_ids) + sent
            delta = self._delta(answer[sent:end], first_position, version, request.sampling.top_logprobs)
            sent = end
            if sent == num_tokens:
                delta = replace(delta, finish_reason="stop" if num_wanted <= max_tokens else "length")
            yield delta

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """The log-probs that `generate` would have given these tokens at these places, whatever the temperature."""
        admit_score(request, self._state)
        await asyncio.sleep(self._options.first_token_delay_s)
        deltas = [
            self._delta(token_ids[start:], start, "", request.top_logprobs)
            for token_ids, start in zip(request.sequences, request.starts, strict=True)
        ]
        return tuple(Scored(logprobs=delta.logprobs, top_logprobs=delta.top_logprobs) for delta in deltas)

    async def publish(self, publication: Publication) -> None:
        """The label is there, and live if that was wished; a folder that is there must have the checksum."""
        async with self._publishing:
            if admit_publication(publication, self._sha256s):
                await asyncio.to_thread(_verify_if_there, publication)
                self._sha256s[publication.version] = publication.sha256
            live = publication.version if publication.live else self._state.live_version
            self._state = replace(self._loaded(), live_version=live)

    async def retire(self, version: str) -> None:
        """The label is gone; answers that run keep it."""
        admit_retirement(version, self._state)
        del self._sha256s[version]
        self._state = self._loaded()

    async def forget_cache(self, salts: Collection[str]) -> None:
        """Nothing of anybody is kept."""

    async def state(self) -> EngineState:
        """The script's window and the versions that are there."""
        return self._state

    async def close(self) -> None:
        """Nothing to let go of."""

    def _loaded(self) -> EngineState:
        checksums = {label: sha256 for label, sha256 in self._sha256s.items() if sha256}
        return replace(self._state, versions=tuple(self._sha256s), checksums=checksums)

    def _answer(self, prompt_ids: Sequence[int]) -> tuple[list[int], ScriptedAnswer | None]:
        """What is still to be said, up to the end of the message, and the rule that says it."""
        segments = self._segments_from_the_end(prompt_ids)
        last = next(segments)
        user = self._said_last(chain((last,), segments))
        for pattern, rule in self._rules:
            if found := pattern.search(user):
                return self._unsaid(_expand(rule.reply, found), last), rule
        return self._unsaid(f"You said: {user[:_ECHO_CHARACTERS]}", last), None

    def _segments_from_the_end(self, prompt_ids: Sequence[int]) -> Iterator[Sequence[int]]:
        """The ids between one <|im_start|> and the next, last message first; all ids if there is no message."""
        backwards = list(reversed(prompt_ids))
        begin = 0
        for _ in range(backwards.count(self._start)):
            end = backwards.index(self._start, begin)
            yield backwards[begin:end][::-1]
            begin = end + 1
        if begin == 0:
            yield prompt_ids

    def _said_last(self, segments_from_the_end: Iterable[Sequence[int]]) -> str:
        texts = dropwhile(lambda text: text is None, map(self._user_text, segments_from_the_end))
        said = [text for text in takewhile(lambda text: text is not None, texts) if text is not None]
        return "\n".join(reversed(said))

    def _user_text(self, segment: Sequence[int]) -> str | None:
        if not self._tokenizer.decode(list(segment[:4])).startswith("user"):  # spares decoding what others said
            return None
        beginning = list(segment[:_MAX_READ_IDS])
        if self._end in beginning:
            del beginning[beginning.index(self._end) :]
        role, _, text = self._tokenizer.decode(beginning).partition("\n")
        return text if role == "user" else None

    def _unsaid(self, reply: str, last_segment: Sequence[int]) -> list[int]:
        reply_ids = self._encode(reply)
        header = self._encode("assistant\n")
        if list(last_segment[: len(header)]) == header:
            given = list(last_segment[len(header) :])
            if reply_ids[: len(given)] == given:
                reply_ids = reply_ids[len(given) :]
            elif reply.startswith(text := self._tokenizer.decode(given)):  # prefilled text, cut differently into ids
                reply_ids = self._encode(reply[len(text) :])
        return [*reply_ids, self._end]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    async def _num_due(self, sent: int, began_at: float) -> int:
        """How many tokens of the answer are due, more than `sent`; always lets the event loop turn."""
        loop = asyncio.get_running_loop()
        rate = self._options.tokens_per_s
        due_at = began_at + (sent / rate if rate else 0.0)
        await asyncio.sleep(max(0.0, due_at - loop.time()))
        if rate:
            return max(sent + 1, int((loop.time() - began_at) * rate) + 1)
        return sent + min(max(sent, 1), _MAX_TOKENS_A_DELTA)

    def _delta(self, token_ids: Sequence[int], first_position: int, version: str, num_top: int) -> Delta:
        logprobs = tuple([_logprob(token, first_position + i) for i, token in enumerate(token_ids)])
        vocab = self._state.vocab_size
        tops = tuple(
            tuple(TokenLogprob((token + rank) % vocab, logprob - rank / 10) for rank in range(num_top))
            for token, logprob in zip(token_ids, logprobs, strict=True)
        )
        top_logprobs = tops if num_top else None
        return Delta(token_ids=tuple(token_ids), logprobs=logprobs, version=version, top_logprobs=top_logprobs)

    def _die(self) -> None:
        if self._failed_marker is None:
            if not self._failed:
                self._failed = True
                raise EngineLost("the script lets the engine die here")
            return
        try:
            self._failed_marker.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def _expand(template: str, found: re.Match[str]) -> str:
    """`template` with its group numbers filled in. Unlike `Match.expand`, other backslashes (JSON's) stay."""
    return _GROUP.sub(lambda number: found.group(int(number[1])) or "", template)


def _verify_if_there(publication: Publication) -> None:
    folder = None if publication.weights is None else publication.weights.folder
    if folder is not None and folder.exists():
        verify(publication)


def _logprob(token: int, position: int) -> float:
    return -(1 + (token * 7919 + position * 104729) % 997) / 1000


def main(argv: Sequence[str] | None = None) -> int:
    """The worker's command line."""
    parser = argparse.ArgumentParser(prog="openclaw_rl.engine.scripted")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a model folder with tokenizer.json")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON object, see ScriptedOptions")
    arguments = parser.parse_args(argv)
    marker = arguments.socket.with_name(f"{arguments.socket.name}.failed")

    def load() -> ScriptedEngine:
        return ScriptedEngine(arguments.tokenizer, ScriptedOptions.from_json(arguments.options), failed_marker=marker)

    return run_worker(arguments.socket, load)


if __name__ == "__main__":
    sys.exit(main())
