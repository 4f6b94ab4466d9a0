"""What was encoded before, for texts that come again: whole ones (`SizedCache`) and words (`WordEncoder`).

Agents resend the same 40 KB system prompt with every request; encoding it costs 15 ms, finding it 10 µs. Who waits can
tell the two apart, so a text is found again only for whoever had it encoded (`owned_by`). Words are everybody's: one
takes microseconds, and is known from the first guess on.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Generic, TypeVar

from openclaw_rl.render.allowance import current_allowance

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

EncodeBatch = Callable[[Sequence[str]], list[list[int]]]

# Never after a blank: a run of blanks is read differently at the end of a text.
_CUT = re.compile(r"(?<=\S)(?= [A-Za-z])|(?<=[A-Za-z])(?=[!-&(-/:-@\[-`{-~])")
_MAX_WORDS = 65_536
_MAX_WORD_CHARS = 64
_SLAB_CHARS = 32_768
"""Tokenised at once: a few milliseconds of work, and of the interpreter's lock."""

_PROBES = (
    "The quick brown fox jumps over the lazy dog, by the way, and a lot of it is in the end of the day.",
    "I'm sure you're right: don't do WHAT they've said. It's John's O'Neill and rock 'n' roll",
    "def f(x): return x if x is not None else y\n  for i in range(10): print(i)\n\nnew  double   spaces a b c D E F",
    "x=[1,2]; y={'a':b}<c>(d)/e.f(g)!=h? i@j #k $l %m &n *o ~p |q \\r `s` ^t _u \"v\" 3.14 1,000 a.b.c --flag=x",
    "naïve café über straße ok then 你好 world a1 b2 c 3 d\tand tabs end. Or so, he said to her. of the in the to be",
)


_owner: ContextVar[str] = ContextVar("owner", default="")


@contextmanager
def owned_by(owner: str) -> Iterator[None]:
    """What is encoded inside, also in a thread that takes the context over, is found again only for this owner."""
    before = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(before)


class SizedCache(Generic[K, V]):
    """Least recently used values, bounded by bytes: each has the size that whoever puts it gives. Safe from threads.

    Every owner has values of its own, under one bound.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._entries: OrderedDict[tuple[str, K], tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """The value of `key`, which becomes the most recently used one."""
        own_key = (_owner.get(), key)
        with self._lock:
            entry = self._entries.get(own_key)
            if entry is None:
                return None
            self._entries.move_to_end(own_key)
            return entry[0]

    def put(self, key: K, value: V, num_bytes: int) -> None:
        """Keep `value`, at the cost of those used longest ago. One that exceeds the whole cache is not kept."""
        if num_bytes > self._max_bytes:
            return
        own_key = (_owner.get(), key)
        with self._lock:
            replaced = self._entries.pop(own_key, None)
            self._num_bytes += num_bytes - (replaced[1] if replaced else 0)
            self._entries[own_key] = (value, num_bytes)
            while self._num_bytes > self._max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._num_bytes -= dropped


class WordEncoder:
    """Encodes through `encode_batch`, remembering words. Safe to use from threads: it only ever adds what is true.

    Byte-level tokenizers never join a word with the blank before the next one or with the punctuation behind it, so a
    text may be cut there and each piece encoded by itself; people's words repeat, so most pieces are known. That a
    tokenizer may be cut is tried out when it is loaded, not assumed.
    """

    def __init__(self, encode_batch: EncodeBatch, added_tokens: Iterable[str]) -> None:
        self._encode_batch = encode_batch
        self._known: dict[str, list[int]] = {}
        self.can_cut = not any(map(_CUT.search, added_tokens)) and all(
            self._by_words(probe) == encode_batch([probe])[0] for probe in _PROBES
        )

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, exactly as the tokenizer gives them, slab by slab: a rendering can be stopped between."""
        if not self.can_cut:
            return self._encode_batch([text])[0]
        ids: list[int] = []
        allowance = current_allowance()
        for slab in _slabs(text):
            ids += self._by_words(slab)
            if allowance is not None:
                allowance.foresee(len(ids))
        return ids

    def _by_words(self, text: str) -> list[int]:
        words = _CUT.split(text)
        found = list(map(self._known.get, words))
        if None in found:
            found = self._learn(words, found)
        return [token for ids in found if ids is not None for token in ids]

    def _learn(self, words: Sequence[str], found: Sequence[list[int] | None]) -> list[list[int] | None]:
        missing = list({word for word, ids in zip(words, found, strict=True) if ids is None})
        new = dict(zip(missing, self._encode_batch(missing), strict=True))
        if len(self._known) > _MAX_WORDS:
            self._known.clear()
        self._known.update((word, ids) for word, ids in new.items() if len(word) <= _MAX_WORD_CHARS)
        return [new.get(word) if ids is None else ids for word, ids in zip(words, found, strict=True)]


def _slabs(text: str) -> Iterator[str]:
    """The text in pieces of about `_SLAB_CHARS`, cut where words are."""
    begin = 0
    while (cut := _CUT.search(text, begin + _SLAB_CHARS)) is not None:
        yield text[begin : cut.start()]
        begin = cut.start()
    yield text[begin:]
