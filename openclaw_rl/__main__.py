"""The `openclaw-rl` command, and `python -m openclaw_rl`."""

import sys


def main() -> None:
    """Ctrl-C ends it with 130 and no traceback, also while Python still reads the program."""
    try:
        from openclaw_rl.cli import app as cli

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
