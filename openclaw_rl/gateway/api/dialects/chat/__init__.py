"""OpenAI Chat Completions: `request.py` reads it, `answer.py` writes it."""

from openclaw_rl.gateway.api.dialects.chat.request import ChatBody, parse
from openclaw_rl.gateway.api.dialects.errors import openai_error
from openclaw_rl.gateway.api.dialects.spoken import Dialect

CHAT = Dialect(name="chat", parse=parse, body=ChatBody, error_body=openai_error)
