"""Anthropic Messages: `request.py` reads it, `answer.py` writes it."""

from openclaw_rl.gateway.api.dialects.errors import anthropic_error
from openclaw_rl.gateway.api.dialects.messages.request import MessagesBody, parse
from openclaw_rl.gateway.api.dialects.spoken import Dialect

MESSAGES = Dialect(name="messages", parse=parse, body=MessagesBody, error_body=anthropic_error)
