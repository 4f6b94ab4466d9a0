"""An engine in a process of its own.

In the control process: `hosts.py` says what each engine can do and how it is started, `supervisor.py` keeps it alive
(`life.py` is one process, `ledger.py` what the next one must load), `client.py` asks it. In the worker: `process.py`
runs it, `server.py` answers over `http.py`, `admission.py` checks what is asked. Both: `wire.py`, the shapes.
"""
