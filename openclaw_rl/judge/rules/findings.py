"""The nouns of the rules: what they find in a reaction, and what they look at."""

from __future__ import annotations

import re
from dataclasses import dataclass

from openclaw_rl.judge.rules.language import Language, Lexicon, PhraseFound
from openclaw_rl.judge.rules.wording import Clause
from openclaw_rl.types.learning import Score

MAX_QUESTION = 400
"""Characters. A longer reply is more than a question."""
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found: its name, the sign, and the words that it matched.

    Strength 0 (moving on, a neutral word) counts only where nothing is stronger; 2 takes back what was said before it.
    """

    rule: str
    sign: Score
    words: str = ""
    strength: int = 1


@dataclass(frozen=True, slots=True)
class Scene:
    """The request and the reply that the person reacts to, and the languages to read the reaction in."""

    request: str
    reply: str
    lexicon: Lexicon
    languages: tuple[Language, ...]

    @property
    def asked(self) -> bool:
        """Whether the reply only asks for what the task needs: it states nothing and offers nothing."""
        if "?" not in self._last[-3:] or self.offered or len(self.reply) > MAX_QUESTION:
            return False
        told = [s for s in map(_plain, _SENTENCE.findall(self.reply)) if "?" not in s[-3:] and s.strip(" .!。")]
        return all(self._says("prelude", sentence) for sentence in told)

    @property
    def offered(self) -> bool:
        """Whether the reply ends with an offer: "Would you like ...?"."""
        return self._says("offers", self._last)

    @property
    def _last(self) -> str:
        sentences = [s for s in _SENTENCE.findall(self.reply[-MAX_QUESTION:]) if s.strip()]
        return _plain(sentences[-1]) if sentences else ""

    def _says(self, key: str, sentence: str) -> bool:
        return any(language.grammar[key].search(sentence) for language in self.languages)

    @property
    def has_code(self) -> bool:
        return "```" in self.reply or "`" in self.request


def _plain(sentence: str) -> str:
    return " ".join(sentence.lower().replace("？", "?").replace("’", "'").split()).strip("*_\"'`) ")


@dataclass(frozen=True, slots=True)
class Reading:
    """One clause in its context."""

    clause: Clause
    found: list[PhraseFound]
    scene: Scene
    opening: bool
    """It opens the message."""
    attached: bool
    """A request, a question or a report precedes it in its sentence; a fragment belongs to that."""

    @property
    def low(self) -> str:
        return self.clause.low

    def at(self, place: int) -> set[str]:
        """The categories of the phrases at a place."""
        return {f.category for f in self.found if f.start <= place < f.end}
