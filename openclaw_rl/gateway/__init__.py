"""Stage 1, request to turn: dialects, sessions, capture, access and the HTTP application."""
