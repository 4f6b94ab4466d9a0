"""OpenAI Chat Completions: `request.py` reads it, `answer.py` writes it."""

from openclaw_rl.gateway.dialects.chat.request import Body, parse
from openclaw_rl.gateway.dialects.openai_errors import error_body
from openclaw_rl.gateway.dialects.spoken import Dialect

CHAT = Dialect(name="chat", parse=parse, body=Body, error_body=error_body)
