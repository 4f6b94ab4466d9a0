"""`openclaw-rl worker`: processes for a system that runs elsewhere."""
