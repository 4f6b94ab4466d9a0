"""Tinker, and every server that speaks its protocol, over the `tinker` SDK."""
