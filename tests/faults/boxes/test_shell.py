"""Commands that turn on the shell that lasts: the worst that comes of it is a new shell, and time that is over."""

from __future__ import annotations

import pytest

from openclaw_rl.types import Ran
from tests.faults.boxes.probe import Probe

SOON_S = 0.5
ANSWERS = ("/work\n[]\n", "/tmp\n[1]\n")
"""Of a new shell, and of one that got over it."""


async def assert_new_shell(probe: Probe) -> None:
    """It works, and what the one before was told is forgotten."""
    assert await probe.shell("pwd; echo [$MARK]") == Ran(exit_code=0, output="/work\n[]\n")


async def test_an_end_that_is_made_up(probe: Probe) -> None:
    """A line like ours, with a name that is not; and our own name, which a command can find, of the command before."""
    made_up = "printf '\\n%s 0\\n' 0123456789abcdef0123456789abcdef; echo more; false"
    ran = await probe.shell(made_up)
    assert (ran.exit_code, ran.output.splitlines()[-1]) == (1, "more")
    keep = "trap 'case $BASH_COMMAND in *%s*%d*) LAST=$BASH_COMMAND;; esac' DEBUG"
    assert (await probe.shell(keep)).exit_code == 0
    again = 'set -- $LAST; printf \'\\n%s 0\\n\' "$5"; echo "$5" | wc -c; trap - DEBUG; false'
    ran = await probe.shell(again)
    assert ran.exit_code == 1
    assert ran.output.splitlines()[-1] == "33", "the name of the command before, which is nobody's now"


async def test_an_end_that_is_stolen(probe: Probe) -> None:
    """A command that reads what its shell is told next ends itself as it likes, which it may. The next is not its."""
    steal = "read -r next </proc/$$/fd/0; set -- $next; printf '\\n%s 0\\n' \"$5\"; exit 7"
    ran = await probe.shell(steal, timeout_s=SOON_S)
    assert ran.exit_code in (0, 7, None)
    ran = await probe.shell("pwd; echo [$MARK]", timeout_s=SOON_S)
    assert ran.output in ("/work\n[]\n", "")
    await assert_new_shell(probe)


@pytest.mark.parametrize(
    "closing",
    [
        "exec 1>&-",
        "exec 1>&- 2>&-",
        "exec >/tmp/elsewhere 2>&1",
        "exec </dev/null",
        "exec 0<&- 1>&- 2>&-",
        "command() { :; }",
        "eval() { :; }; command() { builtin eval; }",
        "set -n",
        "kill -STOP $$",
        "trap 'kill -STOP $$' EXIT; exit",
        "trap '' TERM INT HUP; while :; do :; done",
        "exec sleep 1000",
        "exec cat /dev/zero",
        "coproc cat; exec 0<&${COPROC[0]}",
    ],
)
async def test_a_shell_that_is_made_deaf_or_dumb(probe: Probe, closing: str) -> None:
    """At worst the next command waits for its whole time, and then there is a new shell."""
    await probe.shell(f"cd /tmp; MARK=1; {closing}", timeout_s=SOON_S)
    ran = await probe.shell("pwd; echo [$MARK]", timeout_s=SOON_S)
    assert ran.output in (*ANSWERS, "")
    assert (await probe.shell("pwd; echo [$MARK]")).output in ANSWERS


@pytest.mark.parametrize(
    ("ending", "exit_code"), [("exit 3", 3), ("exec true", 0), ("kill -9 $$", 137), ("ulimit -t 1; kill -XCPU $$", 152)]
)
async def test_a_shell_that_is_ended(probe: Probe, ending: str, exit_code: int) -> None:
    assert await probe.shell(f"MARK=1; echo bye; {ending}") == Ran(exit_code=exit_code, output="bye\n")
    await assert_new_shell(probe)


@pytest.mark.parametrize(
    "spoiling",
    [
        "PATH=",
        "readonly PATH HOME PWD IFS",
        "set -eu",
        "set -f; IFS=abcdefghijkl",
        "umask 777",
        "set -v",
        "ulimit -u 0",
    ],
)
async def test_a_shell_that_is_spoilt_is_still_one(probe: Probe, spoiling: str) -> None:
    """The command's own doing, with all that follows from it; every command after it ends."""
    await probe.shell(spoiling)
    for _ in range(2):
        assert "heard\n" in (await probe.shell("echo heard")).output
        assert (await probe.shell("false")).exit_code == 1


async def test_jobs_that_hold_what_the_shell_writes_to(probe: Probe) -> None:
    for hold in (
        "sleep 1000 &",
        "nohup sleep 1000 &",
        "(setsid sleep 1000 &)",
        "sleep 1000 & disown",
        "coproc sleep 1000",
    ):
        ran = await probe.shell(f"MARK=1; {hold}\necho held", timeout_s=30)
        assert ran.exit_code == 0
        assert ran.output.endswith("held\n")
    assert (await probe.shell("echo [$MARK]")).output.endswith("[1]\n")
    assert (await probe.sh("(sleep 1000 &) ; sleep 1000 & echo ended")).output == "ended\n"


async def test_a_command_as_long_as_commands_may_be(probe: Probe) -> None:
    """The pipe that a shell reads from holds less; one that does not read does not keep us."""
    long = f": {'x' * 120_000}; echo end"
    assert (await probe.shell(long)).output == "end\n"
    await probe.shell("MARK=1; exec sleep 1000", timeout_s=SOON_S)
    assert (await probe.shell("kill -STOP $$", timeout_s=SOON_S)).exit_code is None
    assert (await probe.shell(long)).output == "end\n"
    quoted = "echo '" + "'\\''" * 30_000 + "' | wc -c"
    assert (await probe.shell(quoted)).output == "30001\n"
