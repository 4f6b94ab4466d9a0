"""What rules find in a reaction, and what they look at: the nouns of judge/reactions.py and judge/clauses.py."""

from __future__ import annotations

import re
from dataclasses import dataclass

from openclaw_rl.judge.language import WIDE, Found, Language, Lexicon
from openclaw_rl.judge.similarity import content
from openclaw_rl.judge.wording import Clause, Words, is_held
from openclaw_rl.types.learning import Score

TELLING = 3
"""So many words with a meaning, beside the phrases themselves, make a complaint tell what is wrong."""
MAX_QUESTION = 400
"""Characters; a longer reply is no mere question."""
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's name, its sign, the words it met and perhaps the instruction they come to.

    `strength` 0 (moving on, a neutral word, a remark) counts only where there is nothing plainer; 2 takes back what
    was said before. `claim` marks what rests on the word of the person alone: judge/asserting.py.
    """

    rule: str
    sign: Score
    words: str = ""
    hint: str = ""
    strength: int = 1
    claim: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """What the person had in front of them, and the languages to read them in."""

    request: str
    reply: str
    lexicon: Lexicon
    languages: tuple[Language, ...]

    @property
    def known(self) -> str:
        """The beginning of what was asked and answered, in lower case."""
        return f"{self.request[:2000]}\n{self.reply[:2000]}".lower()

    @property
    def questions(self) -> bool:
        """Whether the reply ended with a question of any kind."""
        return "?" in self._last[-3:]

    @property
    def asked(self) -> bool:
        """Whether the reply only asks for what the task needs: it states nothing, and its question is no offer."""
        if not self.questions or self.offered or len(self.reply) > MAX_QUESTION:
            return False
        told = [s for s in map(_plain, _SENTENCE.findall(self.reply)) if "?" not in s[-3:] and s.strip(" .!。")]
        return all(self._says("prelude", sentence) for sentence in told)

    @property
    def offered(self) -> bool:
        """Whether the reply closes with an offer ("Would you like ...?"), which asks for nothing the task needs."""
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
    """One clause where it stands."""

    clause: Clause
    found: list[Found]
    words: Words
    scene: Scene
    opening: bool
    """It is the first of the message."""
    attached: bool
    """A request, a question or a report precedes it in its sentence, so a fragment belongs to that."""
    denied: bool
    """A "no" precedes it in its sentence."""
    complained: bool
    """A complaint precedes it in the message."""

    @property
    def low(self) -> str:
        return self.clause.low

    @property
    def alone(self) -> bool:
        """It is all of the message."""
        return len(self.words.clauses) == 1

    @property
    def asks_whole(self) -> bool:
        """It is a whole sentence with a question mark."""
        return self.clause.asked and self.clause.rest == self.clause.text

    @property
    def about_self(self) -> bool:
        """It is about the person or somebody else, and names nothing of the reply."""
        return self.has("own") and not self.has("about_reply")

    @property
    def bare(self) -> bool:
        """It says nothing beside its phrases: "no, that is so wrong" corrects without a direction."""
        return not self.clause.language.grammar["filler"].sub("", self._without(self.found)).strip()

    @property
    def telling(self) -> bool:
        """It tells what is wrong; text without spaces has about two pairs of characters to a word."""
        return self.weight(self.found) >= (2 * TELLING if WIDE.search(self.low) else TELLING)

    def has(self, key: str) -> bool:
        """Whether an expression of the language's grammar meets the clause."""
        return self.clause.language.grammar[key].search(self.low) is not None

    def at(self, place: int) -> set[str]:
        """The categories of the phrases at a place."""
        return {f.category for f in self.found if f.start <= place < f.end}

    def weight(self, without: list[Found]) -> int:
        """How many words with a meaning there are beside some phrases; held-back pieces count as one each."""
        left = self._without(without)
        return len(content(left)) + sum(map(is_held, left))

    def _without(self, phrases: list[Found]) -> str:
        left = list(self.low)
        for phrase in phrases:
            if phrase.category != "doubt":  # "wasn't it 1945" holds the correction itself
                left[phrase.start : phrase.end] = " " * (phrase.end - phrase.start)
        return "".join(left)
