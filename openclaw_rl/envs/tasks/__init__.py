"""Formats in which people already have their tasks."""
