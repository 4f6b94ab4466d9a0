"""A service that speaks Tinker's protocol, written from its SDK's own types, and really trains a tiny model."""
