"""What a person sees: the commands behind `cli.py`, one file each.

They look at the rest of the system from outside: over HTTP, through the store's reader, through settings. Nothing but
`cli.py` imports this package, and importing it costs nothing.
"""
