"""Which conversation a request continues, and whether a person reads its answer.

`identify.py` reads what the client says about it, `history.py` names a history by its messages, `placement.py` finds
the session and the turn (`known_turns.py` is its memory), `kinds.py` tells housekeeping calls by `wording.py`.
"""
