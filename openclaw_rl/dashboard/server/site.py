"""The page's files -> what browsers get at /ui/, each with its ETag; and the headers that every page answer has.

The files are read once, at the start: they are part of the release, and small.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aiohttp import web

FOLDER = Path(__file__).resolve().parents[1]

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
"""What is served of the folder; everything else in it is not for browsers."""

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)

PAGE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""No script or style stands in a page, none comes from elsewhere, and nobody may frame it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFile:
    body: bytes
    content_type: str
    etag: str


class Site:
    """The files by their path below /ui/; no other path leads to a disk."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _file(path)
            for path in sorted(folder.rglob("*"))
            if path.suffix in _TYPES and path.is_file() and path.relative_to(folder).parts[0] != "server"
        }

    @property
    def names(self) -> list[str]:
        return list(self._files)

    @property
    def languages(self) -> list[str]:
        """What the page can be read in."""
        paths = map(PurePosixPath, self._files)
        return [path.stem for path in paths if path.parent.name == "i18n" and path.suffix == ".json"]

    def answer(self, request: web.Request) -> web.Response:
        """The file of the path, or that the browser has it already."""
        found = self._files.get(request.match_info.get("path", "") or "index.html")
        if found is None:
            raise web.HTTPNotFound
        headers = {**PAGE_HEADERS, "ETag": found.etag, "Cache-Control": "no-cache", "Content-Type": found.content_type}
        if found.etag in (one.strip() for one in request.headers.get("If-None-Match", "").split(",")):
            return web.Response(status=304, headers=headers)
        return web.Response(body=found.body, headers=headers)


def _file(path: Path) -> SiteFile:
    body = path.read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return SiteFile(body=body, content_type=_TYPES[path.suffix], etag=etag)
