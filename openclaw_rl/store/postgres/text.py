"""Any text in PostgreSQL, which knows no NUL: as it is sent, and as it comes back. Nothing else is changed.

    NUL  ->  ESC 0        ESC  ->  ESC 1

Only texts of people can hold either: what is stored as JSON escapes both itself.
"""

from __future__ import annotations

from typing import Any

_ESCAPE = "\x1b"


def escape(text: str) -> str:
    """
    >>> escape("a\\0b")
    'a\\x1b0b'
    """
    return text.replace(_ESCAPE, _ESCAPE + "1").replace("\0", _ESCAPE + "0")


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return text.replace(_ESCAPE + "0", "\0").replace(_ESCAPE + "1", _ESCAPE) if _ESCAPE in text else text


def adapt(connection: Any) -> None:
    """Makes a connection of psycopg, which is an extra, send and read text so."""
    from psycopg.types.string import StrDumperUnknown, TextLoader

    class Sent(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(escape(obj) if "\0" in obj or _ESCAPE in obj else obj)

    class Read(TextLoader):
        def load(self, data: Any) -> str | bytes:
            text = super().load(data)
            return unescape(text) if isinstance(text, str) else text

    connection.adapters.register_dumper(str, Sent)
    connection.adapters.register_loader("text", Read)
