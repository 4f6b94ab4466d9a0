"""Names that tasks are made of. Those of training and of held-out tasks have nothing in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from openclaw_rl.types import Split

_NOUNS: dict[Split, str] = {
    "train": "notes report budget photo letter recipe invoice memo plan draft summary list guide story journal diary "
    "schedule poem song menu ticket form survey lecture outline chapter",
    "held_out": "agenda essay catalog manual contract quote review script speech brief ledger roster",
}
_FOLDERS: dict[Split, str] = {
    "train": "docs archive backup images data music projects drafts work home letters reports old shared papers photos",
    "held_out": "library records storage media office travel garden winter",
}
_PEOPLE: dict[Split, str] = {
    "train": "Ada Ben Carla Dan Eva Finn Greta Hugo Ida Jan Kira Leo Mona Nils Olga Paul",
    "held_out": "Quinn Rosa Sven Tara Udo Vera Wim Yara",
}
_WORDS: dict[Split, str] = {
    "train": "apple river stone cloud bread candle mirror window basket hammer paper button pencil ladder kettle "
    "blanket garden bottle saddle feather",
    "held_out": "lantern anchor barrel copper meadow pebble thread walnut velvet compass",
}
_EXTENSIONS: dict[Split, str] = {"train": "txt md csv log tmp json", "held_out": "bak dat old xml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWords:
    """Names for one task, drawn from those of its split."""

    random: Random
    split: Split

    def noun(self) -> str:
        return self._one(_NOUNS)

    def folder(self) -> str:
        return self.random.choice([*_FOLDERS[self.split].split(), *(f"{noun}s" for noun in _NOUNS[self.split].split())])

    def person(self) -> str:
        return self._one(_PEOPLE)

    def people(self, number: int) -> list[str]:
        return self.random.sample(_PEOPLE[self.split].split(), number)

    def words(self, number: int) -> list[str]:
        """Any, also the same one twice."""
        return self.random.choices(_WORDS[self.split].split(), k=number)

    def nouns(self, number: int) -> list[str]:
        """Different ones."""
        return self.random.sample(_NOUNS[self.split].split(), number)

    def extension(self) -> str:
        return self._one(_EXTENSIONS)

    def extensions(self, number: int) -> list[str]:
        """Different ones."""
        return self.random.sample(_EXTENSIONS[self.split].split(), number)

    def file(self) -> str:
        return f"{self.noun()}.{self.extension()}"

    def files(self, number: int, extension: str = "") -> list[str]:
        """Different ones."""
        return [f"{noun}.{extension or self.extension()}" for noun in self.nouns(number)]

    def lines(self, least: int, most: int) -> str:
        """Some lines of one to five words."""
        number = self.random.randint(least, most)
        return "".join(" ".join(self.words(self.random.randint(1, 5))) + "\n" for _ in range(number))

    def one_of(self, options: Sequence[str]) -> str:
        return self.random.choice(options)

    def _one(self, pool: dict[Split, str]) -> str:
        return self.random.choice(pool[self.split].split())
