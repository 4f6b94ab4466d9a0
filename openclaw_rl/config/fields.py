"""The building blocks of the settings tree: the frozen section, the value types and the two field makers.

It knows no single setting; `tree.py` and `learning.py` declare those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, SecretStr

HIDDEN = "***"
"""What a dump shows in place of a secret. It is refused as a value, so a dump cannot be loaded as a password."""
FROM_FILE = "file:"

# Greedy up to the last @: SQLAlchemy allows a slash in a password, and hiding too much is the safer mistake.
_URL_PASSWORD = re.compile(
    r"(?P<before>://[^:/@\s]*:)\S*(?=@)|(?P<param>[?&;](?:password|api_key|token)=)[^&;\s]*", re.I
)


class Section(BaseModel):
    """One branch of the tree: unknown keys are refused, values never change, NaN and infinity are not numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, mask_passwords(value) if isinstance(value, str) else value


def setting(default: Any, doc: str) -> Any:
    """A setting that does what it says."""
    return Field(default=default, description=doc)


def limited(default: Any, doc: str, why: str, *, also: Sequence[Any] = ()) -> Any:
    """A setting of which this release takes the default and `also` only; a start with another is refused with `why`."""
    return Field(default=default, description=doc, json_schema_extra={"takes": [default, *also], "why": why})


def mask_passwords(text: str) -> str:
    """`text` with the password of every URL in it hidden."""
    return _URL_PASSWORD.sub(lambda found: (found["before"] or found["param"]) + HIDDEN, text)


def _refuse_hidden(value: object) -> object:
    if isinstance(value, str) and (value == HIDDEN or f":{HIDDEN}@" in value or f"={HIDDEN}" in value):
        raise ValueError(f"{HIDDEN} stands for a secret that was hidden in a dump; give the secret or remove the line")
    return value


def _from_file(value: object) -> object:
    """`file:PATH` stands for what is in that file, without the end of its line, as service managers show secrets."""
    if not isinstance(value, str) or not value.startswith(FROM_FILE):
        return value
    path = Path(value.removeprefix(FROM_FILE)).expanduser()
    try:
        text = path.read_text().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"{path} cannot be read ({reason}); file:PATH names a file with the secret in it") from None
    if not text:
        raise ValueError(f"{path} is empty; write the secret into it")
    return text


def _refuse_no_path(value: object) -> object:
    if value == "":
        raise ValueError("the path is empty; give a path, or null for none")
    if isinstance(value, str) and re.match(r"https?://", value):
        raise ValueError("this is a URL, and a folder or file of this machine is read here; give its path")
    return value


def _absolute(path: Path) -> Path:
    # A relative path means the directory that the command was typed in; workers and dumps must not guess it again.
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"cannot expand {str(path)!r}: {error} Set HOME or give a full path.") from error


def _check_regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


def _check_reuse(rule: str) -> str:
    if not re.fullmatch(r"exact|reuse\([1-9][0-9]*\)", rule):
        raise ValueError("expected exact, or reuse(n) with a number of versions such as reuse(4)")
    return rule


Text = Annotated[str, Field(min_length=1)]
FsPath = Annotated[Path, BeforeValidator(_refuse_no_path), AfterValidator(_absolute)]
Secret = Annotated[
    SecretStr,
    BeforeValidator(_from_file),
    BeforeValidator(_refuse_hidden),
    Field(min_length=1),
    PlainSerializer(lambda _: HIDDEN, return_type=str),
]
Url = Annotated[
    str,
    BeforeValidator(_from_file),
    BeforeValidator(_refuse_hidden),
    Field(min_length=1),
    PlainSerializer(mask_passwords),
]
"""It may have a password in it, and so may come from a file too."""
Regex = Annotated[str, AfterValidator(_check_regex)]
Reuse = Annotated[str, AfterValidator(_check_reuse)]
LoraRank = Literal[8, 16, 32, 64, 128, 256, 320, 512]
"""What vLLM takes as its largest."""
Port = Annotated[int, Field(ge=0, le=65535)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
