"""One model's `tokenizer.json` as text to ids and ids to text, with control tokens that no text can spell.

A control token (`<|im_start|>`, `<tool_call>`, …) is told apart from the same letters in somebody's message by its
name: the tokenizer is loaded with every control token renamed to a *mark*, a private-use character with a random
number in it. Text from outside cannot contain a mark, so it is always encoded as plain text; `mark` turns the spelled
control tokens of our own scaffolding into marks. Does not know messages or chat formats.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

import orjson
from tokenizers import Tokenizer

from openclaw_rl.errors import ModelError
from openclaw_rl.protocols import TextDecoder
from openclaw_rl.render.allowance import current_allowance
from openclaw_rl.render.cache import SizedCache, WordEncoder
from openclaw_rl.render.decoding import ByteDecoder, PieceDecoder, byte_alphabet
from openclaw_rl.render.fewest import FewestTokens
from openclaw_rl.types import Json

TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""What answer parsers look for: control tokens where a tokenizer has them, and never hidden by decoding."""

# Its threads cost more than they bring: the texts are small, and the event loop would wait for them.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

CACHE_BYTES = 64 * 2**20
_WORTH_KEEPING = 512
"""Characters of a text that is remembered: what people say is short and said once, and took room for nothing."""
_MAX_BYTES_PER_CHAR = 4
"""In UTF-8. A token is a byte at least."""
_TUPLE_BYTES = 40
"""An id in a cached tuple: a pointer and an int of its own."""

_OPEN, _CLOSE = "\ue000", "\ue001"
_ANGLE_BAR = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)


class Vocabulary:
    """Text to ids and back for one tokenizer. Safe to call from threads."""

    def __init__(self, tokenizer_json: bytes) -> None:
        raw: Json = orjson.loads(tokenizer_json)
        nonce = secrets.token_hex(8)
        added = raw["added_tokens"]
        control = [token for token in added if _is_control(token)]
        self.control: dict[str, int] = {token["content"]: token["id"] for token in control}
        self._contents: dict[int, str] = {token["id"]: token["content"] for token in added}
        self._skipped = frozenset(token["id"] for token in added if token["special"] and token["content"] not in TAGS)
        self._marks = {content: f"{_OPEN}{nonce}.{token}{_CLOSE}" for content, token in self.control.items()}
        self._mark_pattern = re.compile(rf"{_OPEN}{nonce}\.(\d+){_CLOSE}")
        self._spelled_pattern = re.compile(
            "|".join(map(re.escape, sorted(self.control, key=len, reverse=True))) or r"(?!)"
        )
        self._shield = f"{_OPEN}{nonce}{_CLOSE}"
        self.is_separable = _is_separable(raw, control)
        """Whether the text on one side of a control token never changes the ids on its other side."""
        plain = [content for content in self._contents.values() if content not in self.control]
        self._fewest = FewestTokens(raw, plain if self.is_separable else [*plain, *self._marks.values()], self.control)
        self._tokenizer = _load(raw, self._marks)
        self._bytes_of: dict[int, bytes] = {}
        self._cache: SizedCache[str, tuple[int, ...]] = SizedCache(CACHE_BYTES)
        self._is_byte_level = (raw["decoder"] or {}).get("type") == "ByteLevel"
        self._words = WordEncoder(self._encode_batch, plain)
        self.encodes_by_words = self.is_separable and self._words.can_cut

    @classmethod
    def from_folder(cls, folder: Path) -> Vocabulary:
        """The vocabulary of a Hugging Face folder."""
        path = folder / "tokenizer.json"
        try:
            return cls(path.read_bytes())
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ModelError(f"{path} is not a tokenizer: {error!r}. Save the tokenizer in the fast format.") from error

    def mark(self, text: str) -> str:
        """Our own `text` with its spelled control tokens made real ones."""
        return self._spelled_pattern.sub(lambda match: self._marks[match.group()], text)

    def shield(self, text: str) -> str:
        """Somebody's `text` made safe to mix with scaffolding that `encode_mixed` will read: its first and last
        characters stay, and so does everything but spelled control tokens."""
        return self._spelled_pattern.sub(lambda match: match.group()[0] + self._shield + match.group()[1:], text)

    def encode_mixed(self, text: str) -> tuple[int, ...]:
        """Ids of scaffolding with shielded text in it."""
        return self.encode(self.mark(text).replace(self._shield, ""))

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of `text`, in which marks are control tokens and everything else is plain text."""
        if not self.is_separable or _OPEN not in text:
            return self._encode_whole(text)
        parts = self._mark_pattern.split(text)  # plain, id, plain, id, …, plain
        ids = list(self._encode_whole(parts[0]))
        for token, plain in zip(parts[1::2], parts[2::2], strict=True):
            ids.append(int(token))
            ids += self._encode_whole(plain)
        return tuple(ids)

    def fewest_tokens(self, text: str) -> int:
        """No fewer tokens than these come of `text`; it is not tokenised for that."""
        return self._fewest.of(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, without the special tokens; invalid UTF-8 becomes U+FFFD."""
        if self._is_byte_level:
            return b"".join(map(self._visible_bytes, token_ids)).decode("utf-8", "replace")
        return self._decode_pieces([token for token in token_ids if self._is_shown(token)])

    def decoder(self) -> TextDecoder:
        """`decode`, piece by piece."""
        if self._is_byte_level:
            return ByteDecoder(self._visible_bytes)
        return PieceDecoder(self._decode_pieces, self._is_byte_piece, self._is_shown)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that `token_id` stands for, spelled out where it is a control token; none for unknown ids."""
        known = self._bytes_of.get(token_id)
        if known is None:
            known = self._bytes_of[token_id] = self._look_up(token_id)
        return known

    def _encode_whole(self, text: str) -> tuple[int, ...]:
        if not text:
            return ()
        allowance = current_allowance()
        ids = self._cache.get(text)
        if ids is None:
            if allowance is not None and not allowance.holds(_MAX_BYTES_PER_CHAR * len(text)):
                allowance.foresee(self.fewest_tokens(text))
            ids = tuple(self._words.encode(text) if self.encodes_by_words else self._encode_batch([text])[0])
            if len(text) >= _WORTH_KEEPING:
                self._cache.put(text, ids, 4 * len(text) + _TUPLE_BYTES * len(ids))
        if allowance is not None:
            allowance.spend(len(ids))
        return ids

    def _encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        # The batch call lets other threads run: `encode` held the interpreter for 180 ms on a 200 KiB prompt.
        return [e.ids for e in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def _visible_bytes(self, token_id: int) -> bytes:
        return b"" if token_id in self._skipped else self.token_bytes(token_id)

    def _look_up(self, token_id: int) -> bytes:
        piece = self._contents.get(token_id) or self._tokenizer.id_to_token(token_id)
        if piece is None:
            return b""
        if self._is_byte_level:
            alphabet = byte_alphabet()
            try:
                return bytes([alphabet[char] for char in piece])
            except KeyError:  # an added token outside the alphabet stands for itself
                return piece.encode()
        if self._is_byte_piece(token_id):
            return bytes.fromhex(piece[3:5])
        return piece.replace("▁", " ").encode()

    def _is_shown(self, token_id: int) -> bool:
        return token_id not in self._skipped and self._tokenizer.id_to_token(token_id) is not None

    def _is_byte_piece(self, token_id: int) -> bool:
        return re.fullmatch(r"<0x[0-9A-F]{2}>", self._tokenizer.id_to_token(token_id) or "") is not None

    def _decode_pieces(self, token_ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=False)
        return self._mark_pattern.sub(lambda match: self._contents[int(match.group(1))], text)


def _is_control(token: Json) -> bool:
    """Added tokens that structure a chat. The others (runs of spaces, HTML tags in Gemma) are ordinary text."""
    content: str = token["content"]
    return token["special"] or content in TAGS or _ANGLE_BAR.fullmatch(content) is not None


def _is_separable(raw: Json, control: list[Json]) -> bool:
    """Byte-level tokenizers without a prefix space, whose control tokens swallow no neighbouring blanks."""
    steps = raw["pre_tokenizer"] or {}
    byte_level = [s for s in steps.get("pretokenizers", [steps]) if s.get("type") == "ByteLevel"]
    return bool(byte_level) and not (
        any(step["add_prefix_space"] for step in byte_level)
        or any(token["lstrip"] or token["rstrip"] or token["single_word"] for token in control)
    )


def _load(raw: Json, marks: dict[str, str]) -> Tokenizer:
    model = raw["model"]
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {marks.get(piece, piece): token for piece, token in vocab.items()}
    else:
        model["vocab"] = [[marks.get(piece, piece), score] for piece, score in vocab]
    if "unk_token" in model:
        model["unk_token"] = marks.get(model["unk_token"], model["unk_token"])
    for token in raw["added_tokens"]:
        token["content"] = marks.get(token["content"], token["content"])
    raw |= {"post_processor": None, "truncation": None, "padding": None}
    try:
        return Tokenizer.from_str(orjson.dumps(raw).decode())
    except Exception as error:  # a boundary: the library raises bare Exception
        raise ModelError(f"tokenizer.json cannot be loaded: {error}. Save the tokenizer in the fast format.") from error
