"""The page's files as browsers get them."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from openclaw_rl.dashboard.server.site import PAGE_HEADERS, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "server").mkdir()
    (tmp_path / "i18n").mkdir()
    for name in ("index.html", "main.js", "i18n/zh.json", "api.d.ts", "__init__.py", "server/page.js", "notes.md"):
        (tmp_path / name).write_text(name)
    return Site(tmp_path)


def ask(site: Site, path: str, **headers: str) -> web.Response:
    request = make_mocked_request("GET", f"/ui/{path}", headers=headers, match_info={"path": path})
    return site.answer(request)


def test_only_what_is_for_browsers_is_served(site: Site) -> None:
    assert site.names == ["i18n/zh.json", "index.html", "main.js"]
    assert site.languages == ["zh"]
    for path in ("api.d.ts", "server/page.js", "notes.md", "../secret", "/etc/passwd", "i18n"):
        with pytest.raises(web.HTTPNotFound):
            ask(site, path)


def test_a_file_has_its_type_its_etag_and_the_policy(site: Site) -> None:
    found = ask(site, "")
    assert (found.body, found.headers["Content-Type"]) == (b"index.html", "text/html; charset=utf-8")
    assert ask(site, "main.js").headers["Content-Type"] == "text/javascript; charset=utf-8"
    for name, value in PAGE_HEADERS.items():
        assert found.headers[name] == value
    policy = found.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"):
        assert part in policy


def test_a_browser_that_has_it_is_not_sent_it_again(site: Site) -> None:
    etag = ask(site, "main.js").headers["ETag"]
    assert not etag.startswith("W/")
    again = ask(site, "main.js", **{"If-None-Match": f'"other", {etag}'})
    assert (again.status, again.body, again.headers["ETag"]) == (304, None, etag)
    assert ask(site, "index.html", **{"If-None-Match": etag}).status == 200
