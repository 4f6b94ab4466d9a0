"""The wire dialects, siblings: each turns its own JSON into a `Request` and an answer into its own JSON."""
