"""The page's door: links, keys, cookies, and who may ask what from where."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from openclaw_rl.dashboard.server.contract import ROUTES
from tests.server import Server
from tests.wire.asking import Admin, assert_error
from tests.wire.browsing import Browser, new_link


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("page") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def owner(server: Server) -> Iterator[Browser]:
    with Browser.of_owner(server) as browser:
        yield browser


def test_the_printed_link_works_once(server: Server) -> None:
    printed = (server.data_dir / "output.txt").read_text()
    link = next(line.split()[-1] for line in printed.splitlines() if "#link=" in line)
    assert link.startswith(f"{server.url}/ui/#link=")
    token = link.partition("#link=")[2]
    with Browser(server) as browser:
        assert_error(browser.client.get("/ui/api/me"), 401)
        told = browser.post("/ui/api/link", {"link": token})
        assert (told["user"], told["is_owner"]) == ("local", True)
        assert browser.get("/ui/api/me") == told
        assert server.key not in str(browser.client.cookies.jar)
    with Browser(server) as another:
        error = assert_error(another.client.post("/ui/api/link", json={"link": token}), 401)
        assert error["code"] == "dead_link"


def test_the_command_prints_a_fresh_link(server: Server) -> None:
    told = [sys.executable, "-m", "openclaw_rl", "page", "--data-dir", str(server.data_dir)]
    url = subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()
    with Browser(server) as browser:
        browser.post("/ui/api/link", {"link": url.partition("#link=")[2]})
        assert browser.get("/ui/api/me")["is_owner"]


def test_the_cookie_is_for_this_site_and_no_script(server: Server) -> None:
    with Browser(server) as browser:
        token = new_link(server).partition("#link=")[2]
        cookie = browser.client.post("/ui/api/link", json={"link": token}).headers["Set-Cookie"]
    words = {word.strip().lower() for word in cookie.split(";")}
    assert {"httponly", "samesite=strict", "path=/ui/"} <= words
    kept = (server.data_dir / "page.json").read_text()
    assert cookie.partition("=")[2].partition(";")[0] not in kept
    assert (server.data_dir / "page.json").stat().st_mode & 0o077 == 0


def test_signing_out_kills_the_cookie(server: Server) -> None:
    with Browser.with_key(server, server.key) as browser:
        ((name, value),) = browser.client.cookies.items()
        browser.post("/ui/api/sign-out")
        assert not browser.client.cookies
        assert_error(browser.client.get("/ui/api/me", headers={"Cookie": f"{name}={value}"}), 401)


def test_a_wrong_key_opens_nothing(server: Server) -> None:
    with Browser(server) as browser:
        assert_error(browser.client.post("/ui/api/sign-in", json={"key": "ocrl-wrong"}), 401)


def test_a_revoked_key_ends_its_sessions(server: Server) -> None:
    with Admin(server) as admin:
        key_id, secret = admin.add_key("eve")
        with Browser.with_key(server, secret) as browser:
            assert not browser.get("/ui/api/me")["is_owner"]
            admin.revoke(key_id)
            assert_error(browser.client.get("/ui/api/me"), 401)


def test_sessions_outlive_a_restart(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        browser = Browser.of_owner(server)
        (cookie,) = (one.value for one in browser.client.cookies.jar)
        browser.close()
        server.kill()
        server.start()
        name = f"openclaw-rl-{server.url.rpartition(':')[2]}"
        with Browser(server) as again:
            again.client.cookies.set(name, str(cookie))
            assert again.get("/ui/api/me")["user"] == "local"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_asks_who_is_there(server: Server, owner: Browser, route: object) -> None:
    """Without a session, from another site, and by a form of one."""
    method, path = route.method, route.path.replace("{", "").replace("}", "")  # type: ignore[attr-defined]
    with Browser(server) as stranger:
        if path not in ("/ui/api/link", "/ui/api/sign-in", "/ui/api/sign-out"):
            response = stranger.client.request(method, path, json={} if method == "POST" else None)
            assert_error(response, 401)
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
    ):
        assert_error(owner.client.request(method, path, json={}, headers=headers), 403)
    if method == "POST":
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert_error(owner.client.post(path, content=b"a=b", headers=form), 415)
        ((name, value),) = owner.client.cookies.items()
        bare = httpx.post(f"{server.url}{path}", json={}, headers={"Cookie": f"{name}={value}"})
        assert_error(bare, 403)


def test_other_sites_of_the_api_may_not_use_the_page(tmp_path: Path) -> None:
    settings = 'gateway.allowed_origins=["https://app.example"]'
    with Server(tmp_path / "data", settings) as server, Browser.of_owner(server) as browser:
        elsewhere = {"Origin": "https://app.example"}
        assert_error(browser.client.post("/ui/api/sign-out", json={}, headers=elsewhere), 403)
        assert httpx.get(f"{server.url}/healthz", headers=elsewhere).status_code == 200


def test_programs_find_nothing_at_the_front_and_browsers_the_page(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/", headers={"Accept": "text/html"}).headers["Location"] == "/ui/"
        assert_error(client.get("/"), 404)
        for path in ("api.d.ts", "server/page.py", "__init__.py", "%2e%2e/pyproject.toml", "server/", "api/nothing"):
            assert_error(client.get(f"/ui/{path}"), 404)


def test_without_the_page_there_is_none(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "gateway.page=false") as server:
        assert_error(httpx.get(f"{server.url}/ui/"), 404)
        assert "#link=" not in (server.data_dir / "output.txt").read_text()
        told = [sys.executable, "-m", "openclaw_rl", "page", "--data-dir", str(server.data_dir)]
        done = subprocess.run(told, capture_output=True, text=True, check=False)
        assert (done.returncode, "gateway.page" in done.stderr) == (1, True)


def test_a_server_without_keys_needs_no_link(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "gateway.require_key=false") as server, Browser(server) as browser:
        assert browser.get("/ui/api/me")["is_owner"]
