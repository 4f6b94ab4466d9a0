"""`openclaw-rl demo`: a simulated user, and what the model learns from it."""
