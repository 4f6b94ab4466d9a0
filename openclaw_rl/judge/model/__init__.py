"""Judges that ask a model: behind a URL, the served base model, or a second engine."""
