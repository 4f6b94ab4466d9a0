"""OpenAI Chat Completions: `request.py` reads it, `answer.py` writes it."""
