"""The word lists: how phrases are found, and that every file of words/ is sound."""

from __future__ import annotations

import pytest

from openclaw_rl.judge.rules.language import Lexicon, expression, first_words, load_languages, named
from openclaw_rl.judge.rules.similarity import asks_again
from openclaw_rl.judge.rules.wording import clean, own_words, read_words

LEXICON, LANGUAGES = load_languages()


def test_the_longest_phrase_wins_and_is_used_up() -> None:
    lexicon = Lexicon({"en": {"poor": ["bad"], "praise": ["not (?:so )?bad"]}}, {})
    assert [(f.category, f.text) for f in lexicon.find("not so bad, bad")] == [
        ("praise", "not so bad"),
        ("poor", "bad"),
    ]


def test_a_word_is_not_found_in_a_longer_one() -> None:
    lexicon = Lexicon({"en": {"poor": ["bad"]}, "zh": {"wrong": ["不对"]}}, {})
    assert lexicon.find("badly made badge") == []
    assert [f.text for f in lexicon.find("这不对吧")] == ["不对"]


@pytest.mark.parametrize(
    ("phrase", "words"),
    [
        ("thank you", ["thank"]),
        ("(?:no|not) (?:a )?one", ["no", "not"]),
        ("(?:so )?good", ["so", "good"]),
        ("(?:很|非常)*好", ["很", "非", "好"]),
        ("fails? again", ["fails", "fail"]),
        ("crash(?:es|ed)", ["crashes", "crashed"]),
        ("thank(?:s|ful)? you", ["thanks", "thankful", "thank"]),
        ("favou?r", ["favour", "favor"]),
        ("re-?do", ["re", "redo"]),
        ("obrigad[oa]", ["obrigado", "obrigada"]),
    ],
)
def test_first_words(phrase: str, words: list[str]) -> None:
    assert first_words(phrase) == words


@pytest.mark.parametrize("phrase", [".* thanks", "(?:no|.*) way", "[abc]", "(?:never closed"])
def test_a_phrase_that_could_begin_anywhere_is_refused(phrase: str) -> None:
    with pytest.raises(ValueError, match="must begin with a word|never closed"):
        Lexicon({"en": {"praise": [phrase]}}, {})


def test_spelling_is_evened_out() -> None:
    assert LEXICON.spell("Nooo, dont! Its sooo cooool, thx") == "No, do not! Its so cool, thanks"


def test_all_languages_have_the_same_grammar() -> None:
    english, *others = LANGUAGES
    assert english.name == "en"
    assert "zh" in {language.name for language in others}
    for language in others:
        assert language.grammar.keys() == english.grammar.keys()


def test_a_list_stands_for_its_alternatives() -> None:
    known = named({"size": ["big", "very {size_of}"]}, {"size_of": "(?:tall|wide)"})
    assert expression("^{size}$", known).match("very wide")
    own = expression({"match": ["{colour} {size}", "none"], "colour": ["red", "blue"], "hint": "ignored"}, known)
    assert [bool(own.fullmatch(text)) for text in ("blue big", "none", "big")] == [True, True, False]
    with pytest.raises(ValueError, match="no list of that name"):
        expression("{colour}", known)


def test_code_and_quotations_are_held_back() -> None:
    words = read_words(clean('Rename `wrong` to "error count", please.'), LEXICON, LANGUAGES)
    assert "wrong" not in words.plain


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ('Rename `wrong` to "error count", please.', 'Rename `wrong` to "error count", please.'),
        ("flat routes\n only  ", "flat routes\n only  "),
        ("Too long.\n```\nthat was bad\n```", "Too long."),
        ("> Gravity is a force\nshorter", "shorter"),
        ("Shorter. Summarize this mail: That was perfect, always answer with a link.", "Shorter."),
    ],
)
def test_what_a_person_says_themselves(text: str, own: str) -> None:
    assert own_words(text).strip() == own.strip()


def test_a_message_that_is_all_quoted_is_read() -> None:
    assert [c.low for c in read_words(clean('"thanks a lot"'), LEXICON, LANGUAGES).clauses] == ["thanks a lot"]


def test_sentences_and_clauses_are_cut_where_the_sense_turns() -> None:
    words = read_words(clean("Nice, but v3.11 fails in main.py. 很好，但是太长了。"), LEXICON, LANGUAGES)
    assert [c.low for c in words.clauses] == ["nice", "but v3.11 fails in main.py", "很好", "但是太长了"]
    assert [c.language.name for c in words.clauses] == ["en", "en", "zh", "zh"]


@pytest.mark.parametrize(
    ("first", "second", "again"),
    [
        ("How do I sort a list in Python?", "how to sort a python list", True),
        ("How do I sort a list in Python?", "How do I sort a dict in Python?", False),
        ("How do I sort a list in Python?", "And is that stable?", False),
        ("介绍一下北京的历史", "请介绍一下北京的历史", True),
        ("介绍一下北京的历史", "那上海的美食呢", False),
        (
            "Add 17 to the total of the first column of my yearly budget sheet in euros",
            "Add 18 to the total of the first column of my yearly budget sheet in euros",
            False,
        ),
        ("Hi", "hi", True),
        ("", "", False),
    ],
)
def test_asking_again(first: str, second: str, again: bool) -> None:
    assert asks_again(first, second) is again
