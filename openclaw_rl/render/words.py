"""Text to ids by the words that were seen before.

Byte-level tokenizers never join a word with the blank before the next one or with the punctuation behind it, so a text
may be cut there and each piece encoded by itself; people's words repeat, so most pieces are known. That a tokenizer
may be cut is tried out when it is loaded, not assumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

EncodeBatch = Callable[[Sequence[str]], list[list[int]]]

# Never after a blank: a run of blanks is read differently at the end of a text.
_CUT = re.compile(r"(?<=\S)(?= [A-Za-z])|(?<=[A-Za-z])(?=[!-&(-/:-@\[-`{-~])")
_MAX_WORDS = 65_536
_MAX_WORD_CHARS = 64

_PROBES = (
    "The quick brown fox jumps over the lazy dog, by the way, and a lot of it is in the end of the day.",
    "I'm sure you're right: don't do WHAT they've said. It's John's O'Neill and rock 'n' roll",
    "def f(x): return x if x is not None else y\n  for i in range(10): print(i)\n\nnew  double   spaces a b c D E F",
    "x=[1,2]; y={'a':b}<c>(d)/e.f(g)!=h? i@j #k $l %m &n *o ~p |q \\r `s` ^t _u \"v\" 3.14 1,000 a.b.c --flag=x",
    "naïve café über straße ok then 你好 world a1 b2 c 3 d\tand tabs end. Or so, he said to her. of the in the to be",
)


class WordEncoder:
    """Encodes through `encode_batch`, remembering words. Safe to use from threads: it only ever adds what is true."""

    def __init__(self, encode_batch: EncodeBatch, added_tokens: Iterable[str]) -> None:
        self._encode_batch = encode_batch
        self._known: dict[str, list[int]] = {}
        self.can_cut = not any(map(_CUT.search, added_tokens)) and all(
            self._by_words(probe) == encode_batch([probe])[0] for probe in _PROBES
        )

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, exactly as the tokenizer gives them."""
        return self._by_words(text) if self.can_cut else self._encode_batch([text])[0]

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
