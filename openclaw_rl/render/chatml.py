"""ChatML: `<|im_start|>ROLE\\nCONTENT<|im_end|>\\n` for each message, which makes bridging exact.

A segment depends on its own message alone and is fenced by control tokens, so a conversation's ids are the
concatenation of its segments' ids: sampled answers are spliced in unchanged, and the next prompt always starts with
the last prompt and answer. The ids of plain chats equal those of the model's own chat template. Tools are written in
Hermes form. Thinking models are not rendered here: their templates drop old thoughts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openclaw_rl.render.family import Family
from openclaw_rl.render.hermes import Hermes
from openclaw_rl.render.parsing import AnswerForm
from openclaw_rl.render.vocabulary import Vocabulary
from openclaw_rl.types import Message, Tool

START, END = "<|im_start|>", "<|im_end|>"


class ChatmlRenderer(Family):
    """`protocols.Renderer` for ChatML. `default_system` opens chats that bring no system message of their own."""

    def __init__(self, vocabulary: Vocabulary, stop_token_ids: Sequence[int], default_system: str | None) -> None:
        super().__init__(vocabulary, stop_token_ids, AnswerForm(calls="json"))
        self._default_system = default_system
        self._hermes = Hermes(vocabulary.mark)
        self._start, self._end = vocabulary.control[START], vocabulary.control[END]
        self._generation = (self._start, *vocabulary.encode("assistant\n"))
        self._newline = vocabulary.encode("\n")

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], sampled: Mapping[int, Sequence[int]]
    ) -> list[int]:
        """The whole conversation, up to where the next answer begins."""
        ids: list[int] = []
        first = 0
        if messages and messages[0].role == "system":
            self._append(ids, "system", self._hermes.system(messages[0].content, tools))
            first = 1
        elif tools or self._default_system is not None:
            self._append(ids, "system", self._hermes.system(self._default_system or "", tools))
        self._append_messages(ids, messages, first, sampled)
        ids += self._generation
        return ids

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: Sequence[Tool],
    ) -> list[int] | None:
        """What `render` gives for the longer conversation, if its system message and tools are still the same."""
        ids = list(prompt_ids)
        ids += completion_ids
        self._close(ids, completion_ids)
        self._append_messages(ids, messages, 0, {})
        ids += self._generation
        return ids

    def _append_messages(
        self, ids: list[int], messages: Sequence[Message], first: int, sampled: Mapping[int, Sequence[int]]
    ) -> None:
        i = first
        while i < len(messages):
            message = messages[i]
            begin, i = i, i + 1
            if message.role == "tool":
                while i < len(messages) and messages[i].role == "tool":
                    i += 1
                self._append(ids, "user", self._hermes.results(messages[begin:i]))
            elif message.role != "assistant":
                self._append(ids, message.role, message.content)
            elif begin in sampled:
                ids += self._generation
                ids += sampled[begin]
                self._close(ids, sampled[begin])
            else:
                self._append(ids, "assistant", self._hermes.assistant(message))

    def _append(self, ids: list[int], role: str, text: str) -> None:
        # One encoding for both: blanks that open the text may join the newline after the role.
        ids.append(self._start)
        ids += self._vocabulary.encode(f"{role}\n{text}")
        ids.append(self._end)
        ids += self._newline

    def _close(self, ids: list[int], answer_ids: Sequence[int]) -> None:
        if not answer_ids or answer_ids[-1] != self._end:
            ids.append(self._end)
        ids += self._newline
