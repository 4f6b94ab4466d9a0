"""Small things that every program needs."""
