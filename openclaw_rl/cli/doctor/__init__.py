"""`openclaw-rl doctor`: facts about this machine, and what to do about them."""
