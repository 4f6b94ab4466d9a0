"""Programs that run in boxes. They need nothing but Python's standard library, and know nothing of the rest of us."""
