"""Writes conversations to files while they happen: openclaw-rl rollouts collect."""

from launch import run

run()
