"""Messages to ids and answers to message parts: one file per way of laying out a conversation. No torch here.

loading     which renderer a model gets
chatml      ours, exact: ChatML models that do not think, the embedded one first
packaged    the `renderers` package, for the families it knows
template    the model's own chat template, for all others (sandbox runs it)
family      what the three share; hermes writes tools as text
parsing     text of an answer -> text, reasoning, tool calls (calls, source: its grammars)
vocabulary  text <-> ids (decoding: ids that still arrive; cache: texts that come again)
"""

from openclaw_rl.render.loading import load_renderer

__all__ = ["load_renderer"]
