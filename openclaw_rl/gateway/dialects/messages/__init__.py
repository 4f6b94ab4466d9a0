"""Anthropic Messages: `request.py` reads it, `answer.py` writes it, `errors.py` says what went wrong."""

from openclaw_rl.gateway.dialects.messages.errors import error_body
from openclaw_rl.gateway.dialects.messages.request import Body, parse
from openclaw_rl.gateway.dialects.spoken import Dialect

MESSAGES = Dialect(name="messages", parse=parse, body=Body, error_body=error_body)
