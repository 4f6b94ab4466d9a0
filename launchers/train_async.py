"""Trains on collected rollouts: openclaw-rl train."""

from launch import run

run()
