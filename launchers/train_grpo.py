"""Binary RL under torchrun, with one process: openclaw-rl up --config configs/binary.yaml."""

from launch import run

run()
