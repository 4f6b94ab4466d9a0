"""Stage 1, request to turn.

`api/` reads a request in its dialect, `sessions/` finds the conversation that it continues, `answer/` renders the
prompt, samples and puts the turn on disk. `access/` says who may ask and what is kept.
"""
