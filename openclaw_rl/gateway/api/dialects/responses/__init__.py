"""OpenAI Responses: `request.py` reads it, `answer.py` writes it, `names.py` is what both must agree on."""

from openclaw_rl.gateway.api.dialects.errors import openai_error
from openclaw_rl.gateway.api.dialects.responses.answer import stored_response
from openclaw_rl.gateway.api.dialects.responses.names import ResponseName, no_response, not_kept
from openclaw_rl.gateway.api.dialects.responses.request import ResponsesBody, parse
from openclaw_rl.gateway.api.dialects.spoken import Dialect

RESPONSES = Dialect(name="responses", parse=parse, body=ResponsesBody, error_body=openai_error)

__all__ = ["RESPONSES", "ResponseName", "no_response", "not_kept", "stored_response"]
