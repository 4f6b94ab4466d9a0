"""Nouns of `openclaw_rl.types`, made with the fields that a test cares about."""
