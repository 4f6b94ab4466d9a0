"""Families that the `renderers` package knows, thinking models first of all, behind our protocol.

The package lays out conversations and bridges them as ids; our vocabulary encodes, and our parsers read the answers.
Its bridge refuses where the model's template would change what came before: Qwen3 drops old thoughts when the user
speaks again. So `render` splices the sampled answers of the running tool cycle and writes older ones from their text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from openclaw_rl.errors import RequestError
from openclaw_rl.render.allowance import current_allowance
from openclaw_rl.render.family import Family
from openclaw_rl.render.parsing import AnswerForm
from openclaw_rl.render.vocabulary import Vocabulary
from openclaw_rl.types import Json, Message, Tool

_CALLS: dict[str, Literal["json", "xml"]] = {
    "qwen3": "json",
    "prime-qwen3": "xml",
    "qwen3-vl": "json",
    "qwen3.5": "xml",
    "qwen3.6": "xml",
    "qwen3.8": "xml",
}
"""The package's families whose answers we can parse, by the name that the package gives them."""

_BY_MODEL_TYPE = {
    "qwen3": ("qwen3", "prime-qwen3"),
    "qwen3_moe": ("qwen3",),
    "qwen3_next": ("qwen3",),
    "qwen3_vl": ("qwen3-vl",),
    "qwen3_5": ("qwen3.5", "qwen3.6", "qwen3.8"),
    "qwen3_5_moe": ("qwen3.5", "qwen3.6", "qwen3.8"),
    "qwen3_5_moe_text": ("qwen3.5", "qwen3.6", "qwen3.8"),
    "qwen3_5_text": ("qwen3.5", "qwen3.6", "qwen3.8"),
}
"""Which of them a local folder may hold, by `model_type` in its config.json."""

_PROBE = {"role": "user", "content": "Hello"}


class PackagedRenderer(Family):
    """`protocols.Renderer` over `inner`, the package's renderer for `family`."""

    def __init__(self, vocabulary: Vocabulary, stop_token_ids: Sequence[int], family: str, inner: Any) -> None:
        closed, opened = (inner.render_ids([_PROBE], add_generation_prompt=generate) for generate in (False, True))
        self._inner = inner
        self._generation: list[int] = opened[len(closed) :]
        opening = vocabulary.decode(self._generation)
        opens_thinking = "<think>" in opening and "</think>" not in opening
        form = AnswerForm(thinks=True, opens_thinking=opens_thinking, calls=_CALLS[family])
        super().__init__(vocabulary, tuple(dict.fromkeys([*stop_token_ids, *inner.get_stop_token_ids()])), form)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], sampled: Mapping[int, Sequence[int]]
    ) -> list[int]:
        """The whole conversation. From its end back, answers are spliced in as long as the package bridges them."""
        end = len(messages)
        tail: list[list[int]] = []
        allowance = current_allowance()
        for i in sorted(sampled, reverse=True):
            num_before = allowance.num_tokens if allowance is not None else 0
            extended = self.bridge(self._generation, sampled[i], messages[i + 1 : end], tools) if i > 0 else None
            if extended is None:
                if allowance is not None:
                    allowance.num_tokens = num_before  # the same messages are written again below
                break
            tail.append(extended[len(self._generation) :])
            end = i
        shown = [self._shown(message) for message in messages[:end]]
        try:
            ids: list[int] = self._inner.render_ids(shown, tools=self._offered(tools), add_generation_prompt=True)
        except ValueError as error:
            raise RequestError(f"this model cannot be shown these messages: {error}", param="messages") from error
        return ids + [token for part in reversed(tail) for token in part]

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: Sequence[Tool],
    ) -> list[int] | None:
        """The longer prompt, or None where the package will not give one that starts with exactly these ids."""
        before = [*prompt_ids, *completion_ids]
        shown = [self._shown(message) for message in messages]
        given = (list(prompt_ids), list(completion_ids), shown)
        rendered = self._inner.bridge_to_next_turn(*given, tools=self._offered(tools))
        if rendered is None or rendered.token_ids[: len(before)] != before:
            return None
        ids: list[int] = rendered.token_ids
        return ids

    def _shown(self, message: Message) -> dict[str, Json]:
        shielded = self._shielded(message)
        return shielded.to_json() if self.form.calls == "json" else self._with_parsed_arguments(shielded)

    def _offered(self, tools: Sequence[Tool]) -> list[dict[str, Json]] | None:
        return [tool.to_json() for tool in self._shielded_tools(tools)] or None


def packaged_renderers(
    vocabulary: Vocabulary, stop_token_ids: Sequence[int], model_name: str, model_type: str
) -> Iterator[PackagedRenderer]:
    """The package's renderers that may fit a model of this type, the likeliest first."""
    families = _BY_MODEL_TYPE.get(model_type, ())
    if not families:
        return
    # Imported here: it takes most of a second and ten families' worth of modules.
    from renderers import config_from_name, create_renderer  # type: ignore[import-untyped]
    from renderers.base import MODEL_RENDERER_MAP  # type: ignore[import-untyped]

    known = MODEL_RENDERER_MAP.get(model_name)
    view = _TokenizerView(vocabulary, model_name)
    for family in sorted(families, key=lambda name: name != known):
        config = config_from_name(family)
        configs = [config]
        if hasattr(config, "enable_thinking"):
            configs += [config.model_copy(update={"enable_thinking": thinks}) for thinks in (True, False)]
        for each in configs:
            try:
                inner = create_renderer(view, each)
            except AssertionError:  # the package's way to say that a control token of the family is missing
                continue
            yield PackagedRenderer(vocabulary, stop_token_ids, family, inner)


class _TokenizerView:
    """Our vocabulary as the package wants to see a tokenizer. What it gets to encode has been shielded."""

    unk_token_id = None
    eos_token_id = None

    def __init__(self, vocabulary: Vocabulary, name: str) -> None:
        self._vocabulary = vocabulary
        self.name_or_path = name

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return list(self._vocabulary.encode_mixed(text))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return b"".join(map(self._vocabulary.token_bytes, token_ids)).decode("utf-8", "replace")

    def convert_tokens_to_ids(self, token: str) -> int | None:
        return self._vocabulary.control.get(token)
