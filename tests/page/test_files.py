"""The page's files, without a browser: small, safe by construction, and with words for everything."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import openclaw_rl.dashboard
from openclaw_rl.config import Config

FOLDER = Path(openclaw_rl.dashboard.__file__).parent
SCRIPTS = sorted(FOLDER.glob("*.js"))
SERVED = [*SCRIPTS, *FOLDER.glob("*.css"), *FOLDER.glob("*.html"), *FOLDER.glob("*.svg"), *FOLDER.glob("i18n/*.json")]
MOST_BYTES = 300_000
RAW_MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|setHTML"


def words(name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((FOLDER / "i18n" / f"{name}.json").read_text())
    return found


def test_all_of_it_is_small() -> None:
    assert sum(path.stat().st_size for path in SERVED) <= MOST_BYTES


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_reads_markup_or_evaluates_text(path: Path) -> None:
    text = path.read_text()
    assert not re.search(RAW_MARKUP, text)
    assert not re.search(r"\beval\(|new Function\(|javascript:", text)
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", text), "nothing is loaded from elsewhere"


def test_the_page_has_no_inline_script_or_style() -> None:
    text = (FOLDER / "index.html").read_text()
    assert not re.search(r"<style|style=|\son\w+=", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_module_that_is_imported_exists(path: Path) -> None:
    for name in re.findall(r'^(?:import|export) .*from "\./(.+)";', path.read_text(), re.MULTILINE):
        assert (FOLDER / name).is_file()


def test_languages_say_the_same_things() -> None:
    english = {re.sub(r"\.(one|other)$", "", key) for key in words("en")}
    for path in (FOLDER / "i18n").glob("*.json"):
        found = {re.sub(r"\.(one|other)$", "", key) for key in words(path.stem) if not key.startswith("told.")}
        assert found == english, path.name
        for key, text in words(path.stem).items():
            there = words("en").get(key) or words("en").get(key.replace(".other", ".one"))
            if there is not None:
                assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", there)), f"{path.name}: {key}"


def test_every_word_that_a_script_asks_for_is_there() -> None:
    english = words("en")
    for path in SCRIPTS:
        for key in re.findall(r'\b(?:t|parts)\(\s*"([^"]+)"', path.read_text()):
            assert key in english or f"{key}.other" in english, f"{path.name}: {key}"
        for key in re.findall(r"\b(?:t|parts)\(\s*`([^`$]+)\$\{", path.read_text()):
            known = words("zh") if key == "told." else english  # what the server says itself in English
            assert any(one.startswith(key) for one in known), f"{path.name}: {key}"


def test_every_reason_that_is_left_out_has_chinese_words() -> None:
    from openclaw_rl.types import Skip

    assert {f"told.left-out.{skip.value}" for skip in Skip} <= set(words("zh"))


def test_chinese_names_every_section_and_remark_and_knows_only_sentences_that_are_said() -> None:
    chinese = words("zh")
    assert {f"told.section.{name}" for name in Config.model_fields} <= set(chinese)
    source = "".join(path.read_text() for part in ("judge", "views") for path in (FOLDER.parent / part).rglob("*.py"))
    said = [key.removeprefix("told.said.") for key in chinese if key.startswith("told.said.")]
    assert said
    assert [one for one in said if f'"{one}"' not in source] == []
