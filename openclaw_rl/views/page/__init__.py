"""ReadStore -> what the web page shows: the answers of its API, each a dataclass whose fields are its JSON.

`openclaw_rl/dashboard/api.d.ts` is written from these (`openclaw_rl/dashboard/server/contract.py`), so that the page's
scripts are checked against what the server sends. Times are seconds since 1970. A list is a `…Page`: `next` asks for
what follows (`?after=NEXT`), and is null at the end.
"""
