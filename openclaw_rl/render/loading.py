"""Which renderer a model gets, decided by the files of its folder and proved on a few conversations.

ChatML models that do not think get our own renderer; families that the `renderers` package knows get the package's;
all others their chat template. The first two are taken only if they give the ids that the model's own template gives
for the probe conversations, so a fine-tune with another template is not mistaken for its family.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

from openclaw_rl.errors import ModelError, RequestError
from openclaw_rl.protocols import Renderer
from openclaw_rl.render.chatml import END, START, ChatmlRenderer
from openclaw_rl.render.packaged import packaged_renderers
from openclaw_rl.render.sandbox import ChatTemplate
from openclaw_rl.render.template import TemplateRenderer
from openclaw_rl.render.vocabulary import Vocabulary
from openclaw_rl.types import Json, Message, Tool, ToolCall

_SYSTEM = Message(role="system", content="Be brief.")
_USER = Message(role="user", content="What is the weather?")
_ANSWER = Message(role="assistant", content="It is sunny.", reasoning="A guess will do.")
_CALLS = Message(
    role="assistant",
    content="I will look.",
    tool_calls=(
        ToolCall(id="call1", name="weather", arguments='{"city": "Bern", "hourly": true}'),
        ToolCall(id="call2", name="weather", arguments='{"city": "Zürich", "hourly": null}'),
    ),
)
_RESULTS = (
    Message(role="tool", content="sunny", tool_call_id="call1"),
    Message(role="tool", content="rainy", tool_call_id="call2"),
)
_TOOL = Tool(name="weather", description="Tells it.", parameters={"type": "object", "properties": {}})

_CHATS: tuple[tuple[Message, ...], ...] = (
    (_USER,),
    (_SYSTEM, _USER),
    (_SYSTEM, _USER, _ANSWER, _USER),
    (_USER, _ANSWER, _USER),
)
_TOOL_CHATS: tuple[tuple[Message, ...], ...] = (
    (_USER,),
    (_SYSTEM, _USER),
    (_USER, _CALLS, *_RESULTS),
    (_USER, _CALLS, *_RESULTS, _ANSWER, _USER),
)


def load_renderer(model_path: Path, model_name: str, tokenizer_path: Path | None = None) -> Renderer:
    """The renderer for the model in the Hugging Face folder `model_path`. Blocking: a tokenizer takes 0.1 to 1 s.

    `tokenizer_path` is the folder with the tokenizer and its chat template, if they lie elsewhere.
    """
    tokenizer_path = tokenizer_path or model_path
    vocabulary = Vocabulary.from_folder(tokenizer_path)
    config = _of_text(_read(model_path / "config.json"))
    tokenizer_config = _read(tokenizer_path / "tokenizer_config.json")
    stop_ids = _stop_ids(vocabulary, config, _read(model_path / "generation_config.json"), tokenizer_config)
    source = _template_source(tokenizer_path, tokenizer_config)
    template = None if source is None else ChatTemplate(source, _constants(tokenizer_config), model_name)

    chatml = _chatml(vocabulary, stop_ids, template)
    if chatml is not None:
        return chatml
    for renderer in packaged_renderers(vocabulary, stop_ids, model_name, str(config.get("model_type"))):
        if template is None or _agrees(renderer, template, vocabulary):
            return renderer
    if template is None:
        raise ModelError(
            f"{model_name} has no chat template (no chat_template.jinja, and none in the tokenizer_config.json of "
            f"{tokenizer_path}), so it cannot chat. Choose an instruction-tuned model, or add its template."
        )
    try:
        return TemplateRenderer(vocabulary, stop_ids, template)
    except RequestError as error:
        raise ModelError(f"{model_name} cannot even render a greeting: {error}") from error


def _chatml(vocabulary: Vocabulary, stop_ids: list[int], template: ChatTemplate | None) -> ChatmlRenderer | None:
    if START not in vocabulary.control or END not in vocabulary.control or not vocabulary.is_separable:
        return None
    if "</think>" in (vocabulary.control if template is None else template.source):
        return None
    if template is None:
        return ChatmlRenderer(vocabulary, stop_ids, None)
    try:
        text = template.render([_USER.to_json()], [])
    except RequestError:
        return None
    chat = f"{START}user\n{_USER.content}{END}\n{START}assistant\n"
    default = text.removesuffix(chat)
    system = default.removeprefix(f"{START}system\n").removesuffix(f"{END}\n") if default else None
    renderer = ChatmlRenderer(vocabulary, stop_ids, system)
    return renderer if _agrees(renderer, template, vocabulary) else None


def _agrees(renderer: Renderer, template: ChatTemplate, vocabulary: Vocabulary) -> bool:
    """Whether both give the same ids for the probes; for those with tools only if the template knows tools."""
    try:
        return all(
            tuple(renderer.render(chat, tools, {})) == vocabulary.encode_mixed(text)
            for chat, tools, text in _probes(template)
        )
    except RequestError:
        return False


def _probes(template: ChatTemplate) -> Iterator[tuple[tuple[Message, ...], tuple[Tool, ...], str]]:
    for chat in _CHATS:
        yield chat, (), template.render([message.to_json() for message in chat], [])
    greeting = [_USER.to_json()]
    if template.render(greeting, []) == template.render(greeting, [_TOOL.to_json()]):
        return
    for chat in _TOOL_CHATS:
        yield chat, (_TOOL,), template.render([_with_objects(message) for message in chat], [_TOOL.to_json()])


def _with_objects(message: Message) -> dict[str, Json]:
    raw = message.to_json()
    for call in raw.get("tool_calls", ()):
        call["function"]["arguments"] = orjson.loads(call["function"]["arguments"])
    return raw


def _template_source(folder: Path, tokenizer_config: Json) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    source = tokenizer_config.get("chat_template")
    if isinstance(source, list):  # several named templates
        source = next((each["template"] for each in source if each["name"] == "default"), None)
    return source if isinstance(source, str) else None


def _constants(tokenizer_config: Json) -> dict[str, str]:
    """`bos_token`, `eos_token`, …, which older files write as objects."""
    named = {key: value for key, value in tokenizer_config.items() if key.endswith("_token")}
    texts = {key: value["content"] if isinstance(value, dict) else value for key, value in named.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _stop_ids(vocabulary: Vocabulary, config: Json, generation_config: Json, tokenizer_config: Json) -> list[int]:
    """What ends an answer: what the checkpoint says, and ChatML's two closing tokens where it has them."""
    declared = generation_config.get("eos_token_id", config.get("eos_token_id"))
    ids = [] if declared is None else declared if isinstance(declared, list) else [declared]
    closing = (END, "<|endoftext|>") if END in vocabulary.control else ()
    spelled = (_constants(tokenizer_config).get("eos_token"), *closing)
    ids += [vocabulary.control[token] for token in spelled if token in vocabulary.control]
    return list(dict.fromkeys(ids))


def _of_text(config: Json) -> Json:
    """Where a model also sees pictures, what ends an answer may stand with what describes the text."""
    nested = config.get("text_config")
    said = nested.get("eos_token_id") if isinstance(nested, dict) else None
    return config if said is None else {"eos_token_id": said, **config}


def _read(path: Path) -> Json:
    """A JSON object; empty if the file does not exist."""
    try:
        value = orjson.loads(path.read_bytes()) if path.exists() else {}
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}. Save the model again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__}, not an object. Save the model again.")
    return value
