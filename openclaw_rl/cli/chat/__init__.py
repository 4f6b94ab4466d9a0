"""`openclaw-rl chat`."""
