"""The nouns of the rules: what they find in a reaction, and what they look at."""

from __future__ import annotations

import re
from dataclasses import dataclass

from openclaw_rl.judge.rules.language import WIDE, Language, Lexicon, PhraseFound
from openclaw_rl.judge.rules.similarity import content
from openclaw_rl.judge.rules.wording import Clause, Words, is_held
from openclaw_rl.types.learning import Score

TELLING = 3
"""A complaint with this many content words beside its phrases tells what is wrong."""
MAX_QUESTION = 400
"""Characters. A longer reply is more than a question."""
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found: its name, the sign, the words that it matched and perhaps a hint.

    Strength 0 (moving on, a neutral word, a remark) counts only where nothing is stronger; 2 takes back what was said
    before it. `claim` marks what rests on the person's word alone (matter.py).
    """

    rule: str
    sign: Score
    words: str = ""
    hint: str = ""
    strength: int = 1
    claim: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """The request and the reply that the person reacts to, and the languages to read the reaction in."""

    request: str
    reply: str
    lexicon: Lexicon
    languages: tuple[Language, ...]

    @property
    def known(self) -> str:
        """The beginning of the request and of the reply, in lower case."""
        return f"{self.request[:2000]}\n{self.reply[:2000]}".lower()

    @property
    def questions(self) -> bool:
        """Whether the reply ended with a question of any kind."""
        return "?" in self._last[-3:]

    @property
    def asked(self) -> bool:
        """Whether the reply only asks for what the task needs: it states nothing and offers nothing."""
        if not self.questions or self.offered or len(self.reply) > MAX_QUESTION:
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
    words: Words
    scene: Scene
    opening: bool
    """It opens the message."""
    attached: bool
    """A request, a question or a report precedes it in its sentence; a fragment belongs to that."""
    denied: bool
    """A "no" precedes it in its sentence."""
    complained: bool
    """A complaint precedes it in the message."""

    @property
    def low(self) -> str:
        return self.clause.low

    @property
    def alone(self) -> bool:
        """It is the only clause of the message."""
        return len(self.words.clauses) == 1

    @property
    def asks_whole(self) -> bool:
        """It is a whole question."""
        return self.clause.asked and self.clause.rest == self.clause.text

    @property
    def about_self(self) -> bool:
        """It is about the person or somebody else, and names nothing of the reply."""
        return self.has("own") and not self.has("about_reply")

    @property
    def bare(self) -> bool:
        """It says nothing beside its phrases: "that is so wrong" gives no direction."""
        return not self.clause.language.grammar["filler"].sub("", self._without(self.found)).strip()

    @property
    def telling(self) -> bool:
        """It tells what is wrong. A word of a text without spaces counts as two pairs of characters."""
        return self.weight(self.found) >= (2 * TELLING if WIDE.search(self.low) else TELLING)

    def has(self, key: str) -> bool:
        """Whether an expression of the language's grammar matches the clause."""
        return self.clause.language.grammar[key].search(self.low) is not None

    def at(self, place: int) -> set[str]:
        """The categories of the phrases at a place."""
        return {f.category for f in self.found if f.start <= place < f.end}

    def weight(self, without: list[PhraseFound]) -> int:
        """The number of content words beside some phrases; each held-back piece counts as one."""
        left = self._without(without)
        return len(content(left)) + sum(map(is_held, left))

    def _without(self, phrases: list[PhraseFound]) -> str:
        left = list(self.low)
        for phrase in phrases:
            if phrase.category != "doubt":  # "wasn't it 1945" holds the correction itself
                left[phrase.start : phrase.end] = " " * (phrase.end - phrase.start)
        return "".join(left)
