"""Token ids to what each of them says, for people. Looks for the model's tokenizer on this disk; fetches nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.config import ModelConfig
from openclaw_rl.errors import ModelError
from openclaw_rl.model.files import EMBEDDED_NAME
from openclaw_rl.render.decoding import ByteDecoder
from openclaw_rl.render.vocabulary import Vocabulary


class TokenTexts:
    """What ids stand for. Without the tokenizer that they belong to, an id stands for itself."""

    def __init__(self, vocabulary: Vocabulary | None = None, digest: str = "") -> None:
        self._vocabulary = vocabulary
        self._digest = digest

    @classmethod
    def find(cls, model: ModelConfig) -> TokenTexts:
        """With the tokenizer of the configured model, if it is here."""
        try:
            folder = model.tokenizer_path or _folder(model)
            if folder is None or not (folder / "tokenizer.json").is_file():
                return cls()
            digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
            return cls(Vocabulary.from_folder(folder), digest)
        except (ModelError, OSError):
            return cls()

    def knows(self, model_id: str) -> bool:
        """Whether this is the tokenizer of the model that a turn names; its id ends in the tokenizer's digest."""
        _, sign, digest = model_id.rpartition("#")
        return self._vocabulary is not None and bool(sign and digest) and self._digest.startswith(digest)

    def texts(self, token_ids: Sequence[int], model_id: str) -> list[str]:
        """One text for each id, control tokens spelled out; a character of several ids stands at the last of them."""
        if not self.knows(model_id):
            return [f"{token} " for token in token_ids]
        assert self._vocabulary is not None
        decoder = ByteDecoder(self._vocabulary.token_bytes)
        texts = [decoder.push([token]) for token in token_ids]
        if texts:
            texts[-1] += decoder.finish()
        return texts


def kept_of_hub(name: str) -> Path | None:
    """The folder of a model in the hub client's cache; None if it has to be fetched."""
    from huggingface_hub import try_to_load_from_cache

    if name.count("/") != 1:
        raise ModelError(f"{name} is neither {EMBEDDED_NAME}, nor an existing folder, nor a hub name ORG/NAME")
    try:
        found = try_to_load_from_cache(name, "config.json")
    except ValueError as error:
        raise ModelError(f"{name} is no hub name: {error}") from error
    return Path(found).parent if isinstance(found, str) else None


def _folder(model: ModelConfig) -> Path | None:
    if model.checkpoint_path is not None:
        return model.checkpoint_path
    if model.name == EMBEDDED_NAME:
        return model.cache_dir / EMBEDDED_NAME
    folder = Path(model.name).expanduser()
    return folder if folder.is_dir() else kept_of_hub(model.name)
