"""Serves the model and records: openclaw-rl serve."""

from launch import run

run()
