"""OpenAI Responses: `request.py` reads it, `answer.py` writes it, `names.py` is what both must agree on."""

from openclaw_rl.gateway.dialects.openai_errors import error_body
from openclaw_rl.gateway.dialects.responses.answer import stored_response
from openclaw_rl.gateway.dialects.responses.names import ResponseName, no_response
from openclaw_rl.gateway.dialects.responses.request import Body, parse
from openclaw_rl.gateway.dialects.spoken import Dialect

RESPONSES = Dialect(name="responses", parse=parse, body=Body, error_body=error_body)

__all__ = ["RESPONSES", "ResponseName", "no_response", "stored_response"]
