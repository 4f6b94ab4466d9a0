"""Fireworks' serverless LoRA, over the training part of the `fireworks-ai` SDK."""
