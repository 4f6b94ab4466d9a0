"""What versions are asked so that they can be compared, and what they answer.

    frozen      the same prompts for everybody and for ever, some of them with tools at hand
    replayed    the last turns of the line whose version it is, with the exact ids of their prompts

`PROBES_BY_KIND` says which of them a line's kind asks for.

Answers are greedy, so that two of them differ only where the versions do. Those of a version to the frozen prompts are
kept while it may be compared with: a release then costs the answers of one version. The quick check asks some of these
prompts and hears how the answers begin. Knows tokens and texts; what an
answer is worth is behaviour.py's.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean

from openclaw_rl.protocols import Engine, Renderer, Scorer
from openclaw_rl.types import (
    BACKGROUND,
    BASE_VERSION,
    SYSTEM_SALT,
    GenerateRequest,
    LineKind,
    Message,
    ReplayedTurn,
    Sampling,
    ScoreRequest,
    TokenLogprob,
    Tool,
)

PROBES = (
    "Which planet is known as the red one?",
    "Which ocean is the largest?",
    "What do you call a baby dog?",
    "What is a synonym of 'quick'?",
    "Which country has the most people?",
    "Which metal is used in most coins?",
    "What is the main job of the heart?",
    "Give me one tip for better sleep.",
    "Tell me a short joke.",
    "In one sentence, what does a carpenter do?",
    "In one sentence, what is a volcano?",
    "In one sentence, what is the difference between a lake and a river?",
    "In one sentence, why is exercise healthy?",
    "Write a short thank-you note to a colleague.",
    "Write a Python function that reverses a string.",
    "I have a headache after staring at a screen all day. What can I do?",
)
"""Most of them are answered by a sentence or two, with room below the limit: there one sees whether answers become
longer. An answer of a word or two says little of that: it may run on by chance."""

_WEATHER = Tool(
    name="get_weather",
    description="The weather in a city now.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
_REMIND = Tool(
    name="set_reminder",
    description="Reminds the user of something at a given time.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string"}, "time": {"type": "string"}},
        "required": ["text", "time"],
    },
)
TOOLS = (_WEATHER, _REMIND)
TOOL_PROBES = (
    "What is the weather in Oslo right now?",
    "Remind me to water the plants at 6 pm.",
    "Is it raining in Lisbon?",
    "Please set a reminder for my dentist at 9 tomorrow.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What a candidate of one kind of line is tried on; its line's replayed turns always are. One that is not asked
    `chat` probes attempts held-out tasks."""

    chat: bool
    """The frozen prompts and the rules of conversation: it answers people, keeps to the topic, does not flatter."""
    capability: bool
    """General questions with a known answer."""


_PEOPLE = Probes(chat=True, capability=True)
PROBES_BY_KIND: Mapping[LineKind, Probes] = {
    "user": _PEOPLE,
    "shared": _PEOPLE,
    "environment": Probes(chat=False, capability=False),
}

CHOSEN = (0, 2, 5, 7, 10, 13, 16, 18)
"""Frozen probes that the quick check asks: facts, advice, a sentence, a note, and two with tools."""

BEGUN_TOKENS = 48
"""Longest answer to one of these."""

_NUM_TOP = 8
"""Alternatives from which the entropy of a step is estimated; the rest counts as one."""

_NUM_KEPT = 8
"""Versions whose answers are kept."""


Passage = tuple[tuple[int, ...], tuple[int, ...]]
"""What is read, and the tokens behind it whose log-probs are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A prompt, rendered up to where an answer begins; `text` is what is asked in it."""

    text: str
    prompt_ids: tuple[int, ...]
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """What a version says to a probe. `logprobs` and `entropies`, in nats, are its own, one for each token."""

    probe: Probe
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    entropies: tuple[float, ...]
    is_cut: bool
    """Whether it was still speaking at the limit."""

    @property
    def passage(self) -> Passage:
        return self.probe.prompt_ids, self.token_ids

    @property
    def entropy(self) -> float:
        return fmean(self.entropies) if self.entropies else 0.0


def frozen_probes(renderer: Renderer) -> tuple[Probe, ...]:
    """The prompts that every line is tried on. A model whose template knows no tools reads them without tools."""
    return (
        *(_probe(renderer, text) for text in PROBES),
        *(_probe(renderer, text, TOOLS) for text in TOOL_PROBES),
    )


def _probe(renderer: Renderer, text: str, tools: tuple[Tool, ...] = ()) -> Probe:
    prompt_ids = tuple(renderer.render([Message(role="user", content=text)], tools, {}))
    return Probe(text=text, prompt_ids=prompt_ids, tools=tools)


def replayed_probes(turns: Sequence[ReplayedTurn]) -> tuple[Probe, ...]:
    """The line's own last turns as probes."""
    return tuple(Probe(text=turn.text, prompt_ids=turn.prompt_ids, tools=turn.tools) for turn in turns)


class Prober:
    """Asks one engine. `max_tokens` is the longest answer, `begun_tokens` the longest one of the quick check."""

    def __init__(self, engine: Engine, renderer: Renderer, probes: Sequence[Probe], *, max_tokens: int) -> None:
        self._engine = engine
        self._renderer = renderer
        self._probes = tuple(probes)
        self._max_tokens = max_tokens
        self.begun_tokens = min(BEGUN_TOKENS, max_tokens)
        self._kept: OrderedDict[str, tuple[ProbeAnswer, ...]] = OrderedDict()
        self._begun: OrderedDict[str, tuple[ProbeAnswer, ...]] = OrderedDict()

    async def frozen(self, version: str) -> tuple[ProbeAnswer, ...]:
        """The answers of a version, which is loaded, to those of the frozen probes that its window has room for."""
        if version not in self._kept:
            fitting = await self._fitting()
            begun = zip(CHOSEN, self._begun.get(version, ()), strict=False)  # a small window has room for fewer
            whole = {at: answer for at, answer in begun if not answer.is_cut}
            rest = iter(await self.ask([probe for at, probe in enumerate(fitting) if at not in whole], version))
            answers = tuple(whole.get(at) or next(rest) for at in range(len(fitting)))
            _keep(self._kept, version, answers)
        self._kept.move_to_end(version)
        return self._kept[version]

    async def begun(self, version: str) -> tuple[ProbeAnswer, ...]:
        """How its answers to the chosen ones of the frozen probes begin; a small window has room for fewer of them."""
        if version in self._kept:
            answers = await self.frozen(version)
            return tuple(self._beginning(answers[at]) for at in CHOSEN if at < len(answers))
        if version not in self._begun:
            fitting = await self._fitting()
            chosen = [fitting[at] for at in CHOSEN if at < len(fitting)]
            _keep(self._begun, version, await self.ask(chosen, version, max_tokens=self.begun_tokens))
        self._begun.move_to_end(version)
        return self._begun[version]

    async def _fitting(self) -> list[Probe]:
        window = (await self._engine.state()).context_window - self._max_tokens
        return [probe for probe in self._probes if len(probe.prompt_ids) <= window]

    async def ask(
        self, probes: Sequence[Probe], version: str, *, max_tokens: int | None = None
    ) -> tuple[ProbeAnswer, ...]:
        """Answers in the order of the probes, of `max_tokens` where that is given. People's requests come first."""
        most = self._max_tokens if max_tokens is None else max_tokens
        return tuple(await asyncio.gather(*(self._answer(probe, version, most) for probe in probes)))

    def _beginning(self, answer: ProbeAnswer) -> ProbeAnswer:
        """What a short answer would have been: it is greedy, so it begins alike."""
        if len(answer.token_ids) <= (most := self.begun_tokens):
            return answer
        ids = answer.token_ids[:most]
        return replace(
            answer,
            token_ids=ids,
            logprobs=answer.logprobs[:most],
            entropies=answer.entropies[:most],
            text=self._renderer.decode(ids),
            is_cut=True,
        )

    async def ask_wished(
        self, probes: Sequence[Probe], wishes: Sequence[str], *, max_tokens: int
    ) -> tuple[ProbeAnswer, ...]:
        """What the base model answers with a wish behind each question; the wishes take turns."""
        hinted = [
            _probe(self._renderer, f"{probe.text}\n\n{wishes[at % len(wishes)]}", probe.tools)
            for at, probe in enumerate(probes)
        ]
        return await self.ask(hinted, BASE_VERSION, max_tokens=max_tokens)

    async def logprobs(
        self, passages: Sequence[Passage], version: str, *, on: Scorer | None = None
    ) -> list[tuple[float, ...]]:
        """The log-probs that a version gives to the tokens after each passage's start; nothing for an empty passage.

        `on` is one of several engines that answer as one.
        """
        asked = [(prompt, said) for prompt, said in passages if said]
        if not asked:
            return [()] * len(passages)
        request = ScoreRequest(
            request_id=f"gate-{secrets.token_hex(6)}",
            sequences=tuple(prompt + said for prompt, said in asked),
            starts=tuple(len(prompt) for prompt, _ in asked),
            version=version,
            cache_salt=SYSTEM_SALT,
        )
        scored = iter(await (on or self._engine).score(request))
        return [next(scored).logprobs if said else () for _, said in passages]

    async def _answer(self, probe: Probe, version: str, max_tokens: int) -> ProbeAnswer:
        request = GenerateRequest(
            request_id=f"gate-{secrets.token_hex(6)}",
            token_ids=probe.prompt_ids,
            sampling=Sampling(max_tokens=max_tokens, temperature=0.0, top_logprobs=_NUM_TOP),
            stop_token_ids=self._renderer.stop_token_ids,
            version=version,
            priority=BACKGROUND,
            exact=True,
            cache_salt=SYSTEM_SALT,
        )
        deltas = [delta async for delta in self._engine.generate(request)]
        ids = tuple(token for delta in deltas for token in delta.token_ids)
        tops = [top for delta in deltas for top in delta.top_logprobs or ()]
        return ProbeAnswer(
            probe=probe,
            token_ids=ids,
            logprobs=tuple(value for delta in deltas for value in delta.logprobs),
            text=self._renderer.decode(ids),
            entropies=tuple(map(_entropy, tops)),
            is_cut=deltas[-1].finish_reason == "length",
        )


def _keep(kept: OrderedDict[str, tuple[ProbeAnswer, ...]], version: str, answers: tuple[ProbeAnswer, ...]) -> None:
    kept[version] = answers
    if len(kept) > _NUM_KEPT:
        kept.popitem(last=False)


def _entropy(top: Sequence[TokenLogprob]) -> float:
    """Of one step, with all that is not among the likeliest as one more alternative: a lower bound."""
    rest = max(0.0, 1.0 - sum(exp(one.logprob) for one in top))
    known = -sum(exp(one.logprob) * one.logprob for one in top)
    return known - (rest * log(rest) if rest else 0.0)
