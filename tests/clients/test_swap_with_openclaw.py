"""Another version goes live while the real OpenClaw is answered."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.clients.openclaw import COMMAND_S, OpenClaw, built_plugin
from tests.clients.talking import ANSWER, CLIENT, Relay, assert_swap_is_not_noticed, script, slow_server

pytestmark = CLIENT


class Turn:
    """A command of OpenClaw in a thread of its own; it ends by itself."""

    def __init__(self, work: Future[str]) -> None:
        self._work = work

    @property
    def is_over(self) -> bool:
        return self._work.done()

    def output(self) -> str:
        return self._work.result(timeout=COMMAND_S)

    def kill(self) -> str:
        return ""


def test_a_swap_while_it_streams(tmp_path: Path) -> None:
    plugin = built_plugin(tmp_path / "plugin")
    with slow_server(tmp_path, script("")) as server, Relay(server) as relay, ThreadPoolExecutor() as pool:
        claw = OpenClaw(tmp_path / "home", url=relay.url, key=server.key, plugin=plugin)
        claw.allow_conversation_access()
        words = ("agent", "--local", "--agent", "main", "--session-id", "swap", "--message", "tell me at length")
        assert ANSWER in assert_swap_is_not_noticed(server, relay, Turn(pool.submit(claw.run, *words)))
