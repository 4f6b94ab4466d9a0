r"""A judge's answer -> one `Vote`, by the letter of what prompts/*.txt ask for.

Whatever deviates is a failed vote with the reason, never a guess. Thinking (`<think>…</think>`) is not read. The score
question is answered by a last line `\boxed{1}`, `\boxed{-1}` or `\boxed{0}`; the hint question by a last line
`\boxed{-1}`, or by a line `\boxed{1}` and one block `[HINT_START]…[HINT_END]` that ends the answer. No other boxed form
may stand in the answer, in any spelling, unless it says the same: an answer that contradicts itself decides nothing.

Judged text that a judge quotes does no harm here: `neutralise` has taken the markers out of it before it was shown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

from openclaw_rl.types import Score, Vote, VoteQuestion

_SCORES: dict[str, Score] = {r"\boxed{1}": 1, r"\boxed{-1}": -1, r"\boxed{0}": 0}
_HINT_OPEN, _HINT_CLOSE = "[HINT_START]", "[HINT_END]"

_LOOKALIKES = str.maketrans("оοхχеεԁѕтһіι∖⧵⟍", "ooxxeedsthii\\\\\\")
"""Letters of other alphabets, and other backslashes, that pass for those of the markers; NFKC leaves them alone."""
_LINE_ENDS = re.compile("\r\n?|[\u000b\u000c\u0085\u2028\u2029]")
_HIDDEN = re.compile(
    "[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What people do not see and models may read: controls, zero-width spaces, direction marks, tags, half characters."""
_ODD = re.compile("[^\u0000-\u007f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]+")
"""Characters that may stand for others; kana, Chinese and Korean ones never do."""
_BOXED = r"b\s*o\s*x\s*e\s*d"
_HINT = r"h\s*i\s*n\s*t[\s_-]*(?:s\s*t\s*a\s*r\s*t|e\s*n\s*d)"
_ANY_BOXED = re.compile(rf"\\\s*{_BOXED}|{_BOXED}(?=\s*\{{)")
_MARKER = re.compile(
    rf"(?P<boxed>(?<![\\/])[\\/]+\s*{_BOXED}|{_BOXED}(?=\s*[{{(\[<&%]))"
    rf"|(?P<hint_mark>[\[(【]\s*{_HINT}\s*[\])】]?|{_HINT}\s*[\])】]|hint_(?:start|end))"
    r"|(?P<fence>(?<!<)<{2,}\s*/?\s*(?:begin|end))"
    r"|(?P<thinking_mark><\s*/?\s*think(?:ing)?\s*>)"
    r"|(?P<control_token><\|[\w .:/-]{1,40}\|>|</?s>|<(?:start|end)_of_turn>|\[/?inst\])"
)
"""What stands for a marker in levelled spelling; the group's name is what is shown in its place.

A run of backslashes or angles is looked at from its beginning only: the time stays linear in the text.
"""


def read_vote(question: VoteQuestion, answer: str) -> Vote:
    """The vote that this answer to the question is."""
    return read_score(answer) if question == "score" else read_hint(answer)


def read_score(answer: str) -> Vote:
    """The vote in an answer to the score question."""
    text = _without_thinking(answer)
    if text is None:
        return _failed("score", "the answer ended while it was thinking", answer)
    *reasoning, last = text.split("\n")
    score = _SCORES.get(last.strip())
    if score is None:
        return _failed("score", r"the last line is not \boxed{1}, \boxed{-1} or \boxed{0}", answer)
    if any(boxed != last.strip() for boxed in _boxed_forms("\n".join(reasoning))):
        return _failed("score", "the answer names several scores", answer)
    return Vote(question="score", score=score, raw=answer)


def read_hint(answer: str) -> Vote:
    """The vote in an answer to the hint question; a positive one carries its hint."""
    text = _without_thinking(answer)
    if text is None:
        return _failed("hint", "the answer ended while it was thinking", answer)
    num_opened, num_closed = text.count(_HINT_OPEN), text.count(_HINT_CLOSE)
    if num_opened > 1 or num_closed > 1:
        return _failed("hint", "the answer holds several hint blocks", answer)
    if num_opened != num_closed:
        return _failed("hint", f"{_HINT_CLOSE if num_opened else _HINT_OPEN} is missing", answer)
    before, _, rest = text.partition(_HINT_OPEN)
    hint, _, after = rest.partition(_HINT_CLOSE)
    if after.strip() or (num_closed and text.index(_HINT_CLOSE) < len(before)):
        return _failed("hint", f"the answer does not end with {_HINT_CLOSE}", answer)
    decision = before.strip().rpartition("\n")[2].strip()
    score = _SCORES.get(decision)
    if score is None or score == 0:
        return _failed("hint", r"there is no line \boxed{1} or \boxed{-1} where the decision belongs", answer)
    if len(list(_boxed_forms(text))) > 1:
        return _failed("hint", "the answer holds several decisions", answer)
    if score == -1 and num_opened:
        return _failed("hint", "there is a hint but no correction", answer)
    if score == 1 and not hint.strip():
        return _failed("hint", "there is a correction but no hint", answer)
    return Vote(question="hint", score=score, hint=hint.strip(), raw=answer)


def neutralise(text: str, nonce: str = "") -> str:
    r"""The text as a judge may see it: `\boxed{1}` becomes `⟦boxed⟧{1}`, and so do all markers, in any spelling.

    Markers are what answers are parsed for, the fences of our prompts, tags of thinking, and control tokens of chat
    templates. Hidden characters are dropped, and our brackets belong to us alone.
    """
    seen = _HIDDEN.sub("", _LINE_ENDS.sub("\n", text)).replace("⟦", "[[").replace("⟧", "]]")
    folded = _fold(seen)
    if nonce and nonce in folded[0]:
        seen = _disarm(seen, folded, re.compile(f"(?P<nonce>{re.escape(nonce)})"))
        folded = _fold(seen)
    return _disarm(seen, folded, _MARKER)


def _disarm(text: str, folded: tuple[str, Sequence[int]], marker: re.Pattern[str]) -> str:
    levelled, places = folded
    parts: list[str] = []
    end = 0
    for match in marker.finditer(levelled):
        parts += (text[end : places[match.start()]], f"⟦{str(match.lastgroup).replace('_', ' ')}⟧")
        end = places[match.end()]
    return "".join(parts) + text[end:]


def _boxed_forms(text: str) -> Iterator[str]:
    """Every boxed form in whatever spelling, as it is spelled, up to its closing brace."""
    folded, places = _fold(text)
    for match in _ANY_BOXED.finditer(folded):
        start = places[match.start()]
        yield text[start : text.find("}", start) + 1]


def _fold(text: str) -> tuple[str, Sequence[int]]:
    """The text with spelling levelled, and where in the original each of its characters, and its end, comes from."""
    if text.isascii():
        return text.lower(), range(len(text) + 1)
    letters: list[str] = []
    places: list[int] = []
    end = 0
    for match in _ODD.finditer(text):
        letters.append(text[end : match.start()].lower())
        places += range(end, match.start())
        for place, character in enumerate(match[0], match.start()):
            level = _level(character)
            letters.append(level)
            places += [place] * len(level)
        end = match.end()
    return "".join(letters) + text[end:].lower(), [*places, *range(end, len(text) + 1)]


@lru_cache(maxsize=4096)
def _level(character: str) -> str:
    """The plain letters that a character may be taken for; nothing for a mark or a joiner."""
    if unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return ""
    return unicodedata.normalize("NFKC", character).casefold().translate(_LOOKALIKES)


def _without_thinking(answer: str) -> str | None:
    """What the judge says after it has thought; None if it never stopped thinking."""
    said = answer.replace("\r\n", "\n").rpartition("</think>")[2]
    return None if "<think>" in said else said.strip()


def _failed(question: VoteQuestion, reason: str, answer: str) -> Vote:
    return Vote(question=question, score=None, failure=reason, raw=answer)
