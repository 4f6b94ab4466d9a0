"""OpenClaw-RL: an agent that gets better because people talk to it. Start reading at `pipeline.py`."""
