"""`python -m openclaw_rl` is the `openclaw-rl` command."""

from openclaw_rl.cli import main

main()
