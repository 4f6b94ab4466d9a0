"""Who may ask, what is kept, and for how long: `auth.py`, `redacting.py`, `retention.py`."""
