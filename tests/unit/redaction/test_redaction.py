"""What is found, what is left alone, and that neither hostile text nor a second pass changes that."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.redaction import Found, find_secrets, is_secret_name, named, numbers, randomness, redact, shapes
from tests.unit.redaction.synthetic import NAMED, PLACES, TOKENS, cases

HARMLESS = (Path(__file__).parent / "harmless.txt").read_text(encoding="utf-8").splitlines()
SYNTHETIC = list(cases(20_260, per_kind=16))


def test_recall_on_synthetic_secrets() -> None:
    assert len(SYNTHETIC) >= 250
    total, hit = Counter(case.kind for case in SYNTHETIC), Counter[str]()
    for case in SYNTHETIC:
        hit[case.kind] += case.secret[-8:] not in redact(case.text)
    table = "\n".join(f"{kind:20} {hit[kind]:3} of {total[kind]:3}" for kind in total)
    assert hit.total() >= 0.97 * total.total(), f"\n{table}"
    assert all(hit[kind] >= 0.9 * total[kind] for kind in total), f"\n{table}"


def test_harmless_lines_stay_as_they_are() -> None:
    assert len(HARMLESS) >= 100
    changed = [f"{line}\n    -> {redact(line)}" for line in HARMLESS if redact(line) != line]
    assert len(changed) <= 0.05 * len(HARMLESS), "\n".join(changed)


def test_harmless_lines_stay_as_they_are_beside_each_other() -> None:
    page = "\n".join(HARMLESS)
    found = [page[one.start : one.end] for one in find_secrets(page)]
    assert len(found) <= 0.05 * len(HARMLESS), found


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("mail ann@example.com now", "mail [redacted email] now"),
        ("password = hunter2", "password = [redacted password]"),
        ('{"password": "hunter2", "n": 1}', '{"password": "[redacted password]", "n": 1}'),
        ("DB_PASSWORD=a,b;c(d)", "DB_PASSWORD=[redacted password]"),
        ("postgres://bob:s3cret@db/x", "postgres://bob:[redacted url-password]@db/x"),
        ("Authorization: Bearer abcdefghijkl12345", "Authorization: Bearer [redacted auth-header]"),
        ("pay 2024 4111 1111 1111 1111 now", "pay 2024 [redacted card] now"),
        ("to DE89 3704 0044 0532 0130 00 COBADEFF", "to [redacted iban] COBADEFF"),
        ("4111 1111 1111 1112", "4111 1111 1111 1112"),
        ("DE89 3704 0044 0532 0130 01", "DE89 3704 0044 0532 0130 01"),
        ("身份证11010519491231002X。", "身份证[redacted id-number]。"),
        ("110105194912310021", "110105194912310021"),
        ("ssn 078 05 1120, 000-12-3456", "ssn [redacted ssn], 000-12-3456"),
        ("phone 4155552671, order 4155552671", "phone [redacted phone], order 4155552671"),
        ("my API key: 0a1b2c3d4e5f60718293", "my API key: [redacted secret]"),
        ("key 0a1b2c3d4e5f60718293", "key 0a1b2c3d4e5f60718293"),
        ("13800138000 030 12345678", "[redacted phone] [redacted phone]"),  # the first one hides the second
    ],
)
def test_only_the_secret_itself_goes(text: str, redacted: str) -> None:
    assert redact(text) == redacted


def test_a_key_that_has_no_end_is_found_by_its_lines() -> None:
    lines = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ"] * 3)
    text = f"-----BEGIN PRIVATE KEY-----\n{lines}\nand then it broke off"
    assert redact(text) == "[redacted private-key]\nand then it broke off"


def test_what_is_found_says_where() -> None:
    text = "ann@example.com has 555-123-4567"
    assert find_secrets(text) == [Found("email", 0, 15), Found("phone", 20, 32)]


@pytest.mark.parametrize(("name", "secret"), [("password", True), ("api_key", True), ("apiKey", True), ("token", True)])
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret
    for harmless in (
        "seconds",
        "route",
        "max_tokens",
        "prompt_tokens",
        "key",
        "turn",
        "tokenizer",
        "secretary",
        "passwordless",
    ):
        assert not is_secret_name(harmless)


def test_a_second_pass_finds_nothing_more() -> None:
    for case in SYNTHETIC:
        once = redact(case.text)
        assert redact(once) == once
    together = redact(" ".join(case.text for case in SYNTHETIC))
    assert redact(together) == together


PIECES = st.sampled_from(
    [
        *(
            "password=",
            "password is ",
            "key: ",
            "token ",
            "'",
            '"',
            "\\n",
            "\n",
            " ",
            "-",
            "=",
            ".",
            "@",
            "+",
            "[redacted ",
        ),
        *("]", "sk-", "4111111111111111", "555-123-4567", "123-45-6789", "ann@example.com", "hunter2", "://a:", "DE"),
        *(
            "AKIAABCDEFGHIJKLMNOP",
            "eyJhbGciOiJIUzI1NiJ9.",
            "Bearer ",
            "a1b2c3d4e5f6a7b8c9d0",
            "İ",
            "密码",
            "是",
            "手机",
            "\0",
        ),
    ]
)


@settings(max_examples=300)
@given(st.lists(PIECES | st.text(max_size=4), max_size=14))
def test_redaction_is_idempotent_and_deterministic(pieces: list[str]) -> None:
    text = "".join(pieces)
    once = redact(text)
    assert redact(text) == once
    assert redact(once) == once
    end = 0
    for one in find_secrets(text):
        assert end <= one.start < one.end <= len(text)
        end = one.end


HOSTILE = ("a", "1", "1 ", "a@a.", "sk-", "eyJ", "password='", "-----BEGIN PRIVATE KEY-----\n", "://a:", "(")
MORE_HOSTILE = (
    *("1-", "=", "a@", "a.", "@a.a", "eyJa.", "ghp_", "SG.a", "+1 ", "01 ", "DE00", "4111 ", "\0", "[redacted ", "\\n"),
    *("password=", "password is ", '{"password":"', "A_KEY=", "key ", "token ", "bearer a", "Cookie: a=", " -u a:"),
    *("密码", "手机", "\nAPI_KEY", "-----BEGIN PRIVATE KEY-----"),
)


@pytest.mark.parametrize(
    ("unit", "size"), [*((unit, 2**20) for unit in HOSTILE), *((unit, 2**16) for unit in MORE_HOSTILE)]
)
def test_much_of_the_same_comes_to_an_end(unit: str, size: int) -> None:
    """Quadratic work on a megabyte would not end within the limit on tests; that it is linear is proved below."""
    text = (unit * (size // len(unit) + 1))[:size]
    assert len(redact(text)) > 0


PATTERNS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in (shapes, named, numbers, randomness)
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern)
}
BOUNDED = 2048
"""Steps that one start of a pattern may take where they can be taken back."""


def greedy_reach(tree: Any) -> int:
    """The most characters that the repeats of a pattern which may give some back can run over; -1: no bound."""
    reach = 0
    for operation, value in tree:
        if operation in (op.MAX_REPEAT, op.MIN_REPEAT):
            _, most, inner = value
            if most == op.MAXREPEAT:
                return -1
            width = inner.getwidth()[1]
            nested = greedy_reach(inner)
            if nested < 0:
                return -1
            reach += int(most) * int(width)
        elif operation is op.POSSESSIVE_REPEAT:
            nested = greedy_reach(value[2])
            if nested < 0:
                return -1
        elif operation is op.SUBPATTERN:
            nested = greedy_reach(value[3])
            if nested < 0:
                return -1
            reach += nested
        elif operation is op.BRANCH:
            branches = [greedy_reach(branch) for branch in value[1]]
            if min(branches) < 0:
                return -1
            reach += max(branches)
        elif operation in (op.ASSERT, op.ASSERT_NOT):
            nested = greedy_reach(value[1])
            if nested < 0:
                return -1
            reach += nested
    return reach


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_can_run_far_and_come_back(name: str) -> None:
    """So a start costs at most a constant, and what a possessive repeat runs over is done with."""
    pattern = PATTERNS[name]
    reach = greedy_reach(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
    assert 0 <= reach <= BOUNDED, f"{name} may take back {'any number of' if reach < 0 else reach} characters"


def test_the_bound_on_patterns_is_one() -> None:
    assert greedy_reach(parser.parse("(?:a+)+b")) == -1
    assert greedy_reach(parser.parse("(?:a++b)*+")) == 0
    assert greedy_reach(parser.parse("(?:ab){1,8}c{2,4}")) == 20


def test_every_kind_is_measured() -> None:
    kinds = {kind for rule in (*shapes.RULES, *named.RULES, *numbers.RULES) for kind in rule.kinds}
    assert kinds - {"secret", "cookie"} <= {*TOKENS, *NAMED}
    assert len(PLACES) >= 10
