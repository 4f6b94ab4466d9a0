"""The HTTP side of the gateway.

`app.py` has the routes and turns errors into answers; `dialects/` read requests and write answers, `serving.py` sends
them. Other routes: `feedback.py`, `rollouts.py`, `metrics.py`, `openapi.py`. `http_server.py` holds the connections,
`admin.py` is the socket for commands.
"""
