"""The commands: options and wiring in `commands.py`, what each of them does in a room beside it."""
