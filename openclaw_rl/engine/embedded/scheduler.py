"""Jobs -> steps: which tokens of which jobs go through the model next, and what comes of them.

One step feeds the model at most one token of every answer that is being written and at most `prefill_chunk` tokens of
prompts, in one pass. So a long prompt holds up running answers by one such chunk and no more. On a GPU short sequences
that are only scored are read side by side, in a pass of their own and outside of the cache. Jobs are served by
priority, then by whose turn it is (`worker/turns.py`), then by arrival; at most `max_active` at a time, and a job that
is pushed out keeps what it has computed. When
the cache is full the last of those who are served gives its part up and computes it again later: tokens are what
counts, keys and values can always be made again.

People come first, and learning never starves: while something in the background waits, a fifth is its own, however much
people ask for (`SHARE`). A fifth slows people by a quarter at worst, and whatever the background would take a minute
for without them it has done within five.

    places     of five places that are served, one in the mean
    prompts    of five tokens of prompts that a step reads, one
    reading    a hidden state after four times its tokens of people's, or after some of people's steps

Synchronous and single-threaded; the same calls give the same steps. Knows no event loop, no wire and no files.
Axes: R rows, H hidden, V vocabulary.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from openclaw_rl.engine.embedded import sampling
from openclaw_rl.engine.embedded.cache import MayReuse, Strand, Strands
from openclaw_rl.engine.embedded.runner import SequencePiece
from openclaw_rl.engine.worker.turns import Turns
from openclaw_rl.errors import EngineError
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.types import PERSON, Delta, GenerateRequest, Hidden, Scored, TokenLogprob

_log = logging.getLogger(__name__)

_HEADROOM = 64
"""Tokens of an answer that a new strand has room for at once."""

_WHOLE_TOKENS = 256
"""The longest sequence that is read whole, beside others."""

_HEAD_ROWS = 64
"""Rows of logits that are held at a time when positions are scored: 64 of 152,000 entries are 39 MB."""


SHARE = 5
"""One in so many is the background's, if it waits."""

_STEPS_OF_PEOPLE = 8
"""Steps for people before the next hidden state is read: on a CPU that takes about as long as three of them."""

_FEWEST_TOKENS = 16
"""A sequence that is shorter takes as long to read."""


class Runner(Protocol):
    """What computes: `runner.NetworkRunner`, or the fallback for architectures of others."""

    vocab_size: int
    context_window: int
    num_layers: int
    bytes_per_token: int
    bytes_per_strand: int
    """What the cache of a sequence takes beside its tokens."""
    device: torch.device
    max_adapters: int
    """Adapters that there is a place for at once."""
    is_launch_bound: bool
    """A prompt in a pass costs the launches of its kernels, however short it is, unlike an answer's next token. Such a
    runner is a `WholeReader`."""

    def new_storage(self, capacity: int) -> Any: ...

    def run(self, pieces: Sequence[SequencePiece]) -> list[Tensor]: ...

    def read_last(self, sequences: Sequence[Sequence[int]], layer: int) -> Tensor: ...

    def decode(
        self, pieces: Sequence[SequencePiece], rows: Sequence[sampling.Row], positions: Sequence[int]
    ) -> sampling.Draws | None: ...

    def logits(self, hidden_RH: Tensor) -> Tensor: ...


@runtime_checkable
class WholeReader(Protocol):
    """Reads many sequences for the price of one, and keeps nothing of them."""

    def read_whole(self, sequences: Sequence[Sequence[int]], adapter: AdapterWeights | None) -> list[Tensor]: ...


@dataclass(frozen=True, slots=True, eq=False)
class EngineWeights:
    """One version as the scheduler sees it: what runs it, whose keys and values may serve it, how it is let go."""

    label: str
    runner: Runner
    adapter: AdapterWeights | None
    may_reuse: MayReuse
    free: Callable[[], object] = lambda: None
    """Gives back what loading took beside memory; called between two steps, when no job has it any more."""


class Job(ABC):
    """A sequence that is read by the model. `over` is final: set by the last result, a failure or a cancellation.

    `salt` says whose strands serve it and who may use what it leaves; nobody, if it is empty.
    """

    def __init__(
        self, token_ids: Sequence[int], weights: EngineWeights, priority: int, *, salt: str, num_shareable: int = 0
    ) -> None:
        self.token_ids = list(token_ids)
        self.weights = weights
        self.priority = priority
        self.salt = salt
        self.num_shareable = num_shareable
        self.party, self.weight = "", 1.0
        self.stamp = 0.0
        self.order = 0
        self.strand: Strand[Any] | None = None
        self.num_cached: int | None = None
        self.over = False

    def may_reuse(self, version: str) -> bool:
        """Whether keys and values that this version computed will do."""
        return self.weights.may_reuse(version)

    @property
    @abstractmethod
    def num_to_feed(self) -> int:
        """Tokens that the model has to see before this job needs logits again."""

    @property
    def num_left_to_feed(self) -> int:
        """Those of them that it has not seen."""
        return self.num_to_feed - (0 if self.strand is None else self.strand.length)

    @property
    @abstractmethod
    def first_wanted(self) -> int:
        """The first token behind which logits are wanted."""

    @property
    @abstractmethod
    def most_tokens(self) -> int:
        """Tokens of cache that this job may come to need."""


class AnswerJob(Job):
    """A request to go on writing."""

    def __init__(self, request: GenerateRequest, weights: EngineWeights, max_tokens: int) -> None:
        super().__init__(
            request.token_ids,
            weights,
            request.priority,
            salt=request.cache_salt,
            num_shareable=request.num_shareable,
        )
        self.request = request
        self.party, self.weight = request.party, request.weight
        self.num_left = max_tokens
        self._row: sampling.Row | None = None

    def may_reuse(self, version: str) -> bool:
        return version == self.weights.label if self.request.exact else super().may_reuse(version)

    @property
    def num_to_feed(self) -> int:
        return len(self.token_ids)

    @property
    def first_wanted(self) -> int:
        return len(self.token_ids) - 1

    @property
    def most_tokens(self) -> int:
        return len(self.token_ids) + self.num_left

    def row_on(self, device: torch.device, vocab_size: int) -> sampling.Row:
        """The request as the sampler sees it, made where the logits will be."""
        if self._row is None:
            self._row = sampling.Row(self.request.sampling, self.request.token_ids, vocab_size, device)
        return self._row

    def add(self, token: int, logprob: float, top: tuple[TokenLogprob, ...] | None) -> Delta:
        """The sampled token as the delta that is sent."""
        self.token_ids.append(token)
        self.num_left -= 1
        stopped = token in self.request.stop_token_ids
        finish = "stop" if stopped else "length" if self.num_left == 0 else None
        self.over = finish is not None
        return Delta(
            token_ids=(token,),
            logprobs=(logprob,),
            version=self.weights.label,
            top_logprobs=None if top is None else (top,),
            finish_reason=finish,  # type: ignore[arg-type]
            num_cached_tokens=self.num_cached or 0,
        )


class ReadingJob(Job):
    """A sequence whose tokens from `start` on are scored; the last one is compared, never fed."""

    def __init__(
        self,
        token_ids: Sequence[int],
        start: int,
        weights: EngineWeights,
        *,
        temperature: float,
        top: int,
        priority: int,
        salt: str,
    ) -> None:
        super().__init__(token_ids, weights, priority, salt=salt)
        self.start = start
        self.temperature = temperature
        self.top = top
        self.logprobs: list[float] = []
        self.tops: list[tuple[TokenLogprob, ...]] = []

    def may_reuse(self, version: str) -> bool:
        """Scores are exact whatever the rule for answers is: they decide which version goes live."""
        return version == self.weights.label

    @property
    def num_to_feed(self) -> int:
        return len(self.token_ids) - 1

    @property
    def first_wanted(self) -> int:
        return self.start - 1 + len(self.logprobs)

    @property
    def most_tokens(self) -> int:
        return len(self.token_ids) - 1

    def scored(self) -> Scored:
        return Scored(logprobs=tuple(self.logprobs), top_logprobs=tuple(self.tops) if self.top else None)


class HiddenJob(Job):
    """A sequence whose last hidden state behind some blocks is wanted; it is read at once, outside of the cache."""

    def __init__(self, token_ids: Sequence[int], layer: int, weights: EngineWeights, priority: int) -> None:
        super().__init__(token_ids, weights, priority, salt="")
        self.layer = layer

    @property
    def num_to_feed(self) -> int:
        return len(self.token_ids)

    @property
    def first_wanted(self) -> int:
        return len(self.token_ids) - 1

    @property
    def most_tokens(self) -> int:
        return 0


Result = tuple[Job, Delta | Scored | Hidden | EngineError]


class Scheduler:
    """All jobs of an engine."""

    def __init__(self, strands: Strands[Any], *, max_active: int, prefill_chunk: int) -> None:
        self._strands = strands
        self._max_active = max_active
        self._prefill_chunk = prefill_chunk
        self._jobs: list[Job] = []
        self._arrivals = count()
        self._turns: defaultdict[int, Turns] = defaultdict(Turns)
        """By priority."""
        self._num_steps = 0
        self._num_people_rows = 0
        """Tokens of people since the last hidden state was read."""

    @property
    def has_work(self) -> bool:
        return bool(self._jobs)

    def submit(self, job: Job) -> None:
        """The job takes its place in line."""
        job.order = next(self._arrivals)
        job.stamp = self._turns[job.priority].stamp(job.party, job.weight)
        self._jobs.append(job)
        self._jobs.sort(key=lambda job: (job.priority, job.stamp, job.order))

    def cancel(self, job: Job) -> None:
        """The job computes no further step; a second call does nothing."""
        job.over = True
        self._let_go(job)

    def forget(self, label: str) -> None:
        """Free what the cache holds of a version that is gone."""
        self._strands.forget(label)

    def forget_cache(self, salts: Collection[str]) -> None:
        """Nothing that these salts left, or that their jobs compute now or later, is found by anybody from now on."""
        for job in self._jobs:
            if job.salt in salts:
                job.salt = ""
        self._strands.forget_salts(salts)

    def step(self) -> list[Result]:
        """One pass of the model over what is due; what came of it. Failures are results of the jobs they hit."""
        results: list[Result] = []
        self._num_steps += 1
        passes: defaultdict[tuple[Runner, bool], list[tuple[Job, SequencePiece]]] = defaultdict(list)
        for job, piece in self._plan(results):
            runner = job.weights.runner
            passes[runner, runner.is_launch_bound and _is_next_token(job, piece)].append((job, piece))
        for (runner, _), work in passes.items():
            jobs = [job for job, _ in work]
            try:
                self._run(runner, work, results)
            except Exception as error:
                # The boundary of the model: what fails in one pass, such as memory, must not end other requests.
                results += [(job, _failure(error)) for job in jobs if not job.over]
                self._fail(jobs)
        self._read_whole(results)
        self._read_hidden(results)
        for job in [job for job in self._jobs if job.over]:
            self._let_go(job)
        return results

    def _plan(self, results: list[Result]) -> list[tuple[Job, SequencePiece]]:
        planned: list[tuple[Job, SequencePiece]] = []
        jobs = [job for job in self._jobs if not (_is_read_whole(job) or isinstance(job, HiddenJob))]
        person_writes = any(job.priority == PERSON and job.num_left_to_feed == 1 for job in jobs)
        num_kept, num_kept_tokens = self._kept_for_background([job for job in jobs if job.priority > PERSON])
        budget, num_active, num_prompts, someone_writes = self._prefill_chunk - num_kept_tokens, 0, 0, False
        num_people_rows = 0
        for job in jobs:
            if num_active == self._max_active:
                break
            if job.priority > PERSON:
                budget, num_kept_tokens = budget + num_kept_tokens, 0
            elif num_active == self._max_active - num_kept:
                continue
            if job.strand is None and budget <= 0:
                continue
            try:
                if job.strand is None and not self._admit(job):
                    break  # whoever comes later does not overtake one that waits for memory
            except Exception as error:  # memory that the budget promised and the device does not have
                results.append((job, _failure(error)))
                self._fail([job])
                continue
            num_active += 1
            assert job.strand is not None
            num_left = job.num_left_to_feed
            if job.priority > PERSON and person_writes and num_left > 1:
                budget = min(budget, max(self._chunk_beside_person(job.weights.runner), num_people_rows // (SHARE - 1)))
            size = 1 if num_left == 1 else min(num_left, budget)
            if size <= 0 or (num_left > 1 and num_prompts and someone_writes and job.weights.runner.is_launch_bound):
                continue
            try:
                if not self._reserve(job, job.strand.length + size):
                    return planned
            except Exception as error:
                results.append((job, _failure(error)))
                self._fail([job])
                continue
            if num_left == 1:
                someone_writes = True
            else:
                num_prompts += 1
                budget -= size
            num_people_rows += size if job.priority == PERSON else 0
            planned.append((job, self._piece(job, size)))
        self._num_people_rows += num_people_rows
        return planned

    def _read_whole(self, results: list[Result]) -> None:
        """Scores short sequences of one version, as many as a chunk of prompts has room for; people wait for a smaller
        one."""
        waiting = [job for job in self._jobs if _is_read_whole(job) and isinstance(job, ReadingJob)]
        if not waiting:
            return
        weights, together, longest = waiting[0].weights, list[ReadingJob](), 0
        someone_waits = any(job.priority == PERSON and not _is_read_whole(job) for job in self._jobs)
        budget = self._chunk_beside_person(weights.runner) if someone_waits else self._prefill_chunk
        for job in (job for job in waiting if job.weights is weights):
            longest = max(longest, job.num_to_feed)
            if together and longest * (len(together) + 1) > budget:
                break
            together.append(job)
        assert isinstance(weights.runner, WholeReader)
        try:
            rows = weights.runner.read_whole([job.token_ids[:-1] for job in together], weights.adapter)
            for job, hidden_PH in zip(together, rows, strict=True):
                results += self._score(weights.runner, job, hidden_PH[job.first_wanted :])
        except Exception as error:  # as in `step`
            results += [(job, _failure(error)) for job in together if not job.over]
            self._fail(together)

    def _read_hidden(self, results: list[Result]) -> None:
        """Reads hidden states, as many sequences as a chunk has room for; beside a person, one now and then."""
        waiting = [job for job in self._jobs if isinstance(job, HiddenJob)]
        is_beside = any(job.priority == PERSON and not isinstance(job, HiddenJob) for job in self._jobs)
        if not waiting:
            return
        price = (SHARE - 1) * max(_FEWEST_TOKENS, waiting[0].num_to_feed)
        if is_beside and self._num_steps % _STEPS_OF_PEOPLE and self._num_people_rows < price:
            return
        self._num_people_rows = 0
        first, together, longest = waiting[0], list[HiddenJob](), 0
        for job in (job for job in waiting if (job.weights, job.layer) == (first.weights, first.layer)):
            longest = max(longest, job.num_to_feed)
            if together and (is_beside or longest * (len(together) + 1) > self._prefill_chunk):
                break
            together.append(job)
        try:
            rows_BH = first.weights.runner.read_last([job.token_ids for job in together], first.layer)
            if not rows_BH.isfinite().all():
                raise EngineError("a hidden state is not finite; the model's weights are broken")
            results += [(job, Hidden(values=tuple(row))) for job, row in zip(together, rows_BH.tolist(), strict=True)]
        except Exception as error:  # as in `step`
            results += [(job, _failure(error)) for job in together]
        for job in together:
            job.over = True

    def _kept_for_background(self, background: Sequence[Job]) -> tuple[int, int]:
        """Places and tokens of prompts that people leave to the background in this step: its share, if it waits."""
        num_places, num_tokens = (
            total * self._num_steps // SHARE - total * (self._num_steps - 1) // SHARE
            for total in (self._max_active, self._prefill_chunk)
        )
        is_reading = any(job.num_left_to_feed > 1 for job in background)
        return min(num_places, len(background)), num_tokens if is_reading else 0

    def _chunk_beside_person(self, runner: Runner) -> int:
        """Tokens that a step reads in the background while a person's answer waits for it.

        On a GPU the step hardly takes longer for them. On a CPU each row has its price: beside the gate's questions an
        answer came at 3 tokens/s with a quarter of a chunk and at 9 with a sixteenth, and the gate took about as long.
        """
        return max(1, self._prefill_chunk // (4 if runner.is_launch_bound else 16))

    def _piece(self, job: Job, size: int) -> SequencePiece:
        assert job.strand is not None
        start = job.strand.length
        return SequencePiece(
            strand=job.strand,
            token_ids=job.token_ids[start : start + size],
            version=job.weights.label,
            adapter=job.weights.adapter,
            num_wanted=max(0, start + size - max(start, job.first_wanted)),
        )

    def _admit(self, job: Job) -> bool:
        """Gives the job a strand; False if there is no memory for it now."""
        prefix = job.token_ids[: job.first_wanted + 1]
        room = min(job.num_to_feed + _HEADROOM, job.most_tokens)
        while (
            strand := self._strands.take(
                prefix, job.weights.label, job.may_reuse, room=room, salt=job.salt, num_shareable=job.num_shareable
            )
        ) is None:
            if not self._make_way(job):
                return False
        job.strand = strand
        self._turns[job.priority].begun(job.stamp)
        if job.num_cached is None:
            job.num_cached = strand.num_own
        return True

    def _reserve(self, job: Job, room: int) -> bool:
        """Room in the job's strand; False if it had to give the strand up, being the last in line."""
        assert job.strand is not None
        while not self._strands.reserve(job.strand, room):
            if not self._make_way(job):
                self._strands.drop(job.strand)
                job.strand = None
                return False
        return True

    def _make_way(self, job: Job) -> bool:
        """Takes the strand of the last one in line away; False if nobody behind `job` has one."""
        for other in reversed(self._jobs):
            if other is job:
                return False
            if other.strand is not None:
                self._strands.drop(other.strand)
                other.strand = None
                return True
        return False

    def _run(self, runner: Runner, work: Sequence[tuple[Job, SequencePiece]], results: list[Result]) -> None:
        answers = [job for job, piece in work if isinstance(job, AnswerJob) and _is_next_token(job, piece)]
        if len(answers) == len(work):
            draws = runner.decode([piece for _, piece in work], _rows(answers, runner), _positions(answers))
            if draws is not None:
                results += self._drawn(answers, draws)
                return
        rows = runner.run([piece for _, piece in work])
        writing: list[tuple[AnswerJob, Tensor]] = []
        for (job, _), hidden_RH in zip(work, rows, strict=True):
            if not len(hidden_RH):
                continue
            if isinstance(job, AnswerJob):
                writing.append((job, hidden_RH))
            elif isinstance(job, ReadingJob):
                results += self._score(runner, job, hidden_RH)
        results += self._draw(runner, writing)

    def _draw(self, runner: Runner, writing: Sequence[tuple[AnswerJob, Tensor]]) -> list[Result]:
        if not writing:
            return []
        answers = [job for job, _ in writing]
        logits_RV = runner.logits(torch.cat([hidden for _, hidden in writing]))
        return self._drawn(answers, sampling.draw(logits_RV, _rows(answers, runner), _positions(answers)))

    def _drawn(self, answers: Sequence[AnswerJob], draws: sampling.Draws) -> list[Result]:
        results: list[Result] = []
        for i, job in enumerate(answers):
            if draws.failed[i]:
                results.append((job, EngineError(sampling.NOT_A_NUMBER)))
                self._fail([job])
            else:
                results.append((job, job.add(draws.token_ids[i], draws.logprobs[i], draws.top_logprobs[i])))
        return results

    def _score(self, runner: Runner, job: ReadingJob, hidden_RH: Tensor) -> list[Result]:
        for part_RH in hidden_RH.split(_HEAD_ROWS):
            first = job.start + len(job.logprobs)
            ids_R = torch.tensor(job.token_ids[first : first + len(part_RH)], device=part_RH.device)
            found = sampling.gather_logprobs(runner.logits(part_RH), ids_R, job.temperature, job.top)
            if any(found.failed):
                self._fail([job])
                return [(job, EngineError(sampling.NOT_A_NUMBER))]
            job.logprobs += found.logprobs
            job.tops += [top for top in found.top_logprobs if top is not None]
        if job.start + len(job.logprobs) < len(job.token_ids):
            return []
        job.over = True
        return [(job, job.scored())]

    def _fail(self, jobs: Sequence[Job]) -> None:
        """What these jobs computed is in doubt: nobody else may use it."""
        for job in jobs:
            job.over = True
            if job.strand is not None:
                self._strands.drop(job.strand)
                job.strand = None

    def _let_go(self, job: Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        if job.strand is not None:
            self._strands.release(job.strand)
            job.strand = None


def _failure(error: Exception) -> EngineError:
    _log.error("a pass of the model failed", exc_info=error)
    return EngineError(f"the model failed with {type(error).__name__}; the engine's log has more")


def _is_read_whole(job: Job) -> bool:
    return isinstance(job, ReadingJob) and job.weights.runner.is_launch_bound and job.num_to_feed <= _WHOLE_TOKENS


def _is_next_token(job: Job, piece: SequencePiece) -> bool:
    """Whether all that this piece is for is one more token of an answer."""
    return isinstance(job, AnswerJob) and len(piece.token_ids) == piece.num_wanted


def _rows(answers: Sequence[AnswerJob], runner: Runner) -> list[sampling.Row]:
    return [job.row_on(runner.device, runner.vocab_size) for job in answers]


def _positions(answers: Sequence[AnswerJob]) -> list[int]:
    return [len(job.token_ids) for job in answers]
