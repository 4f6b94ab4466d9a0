"""`openclaw-rl connect`: agents that people have ask this server."""
