"""The trainer over several processes, GPUs and machines: PyTorch's FSDP2 around the same steps, losses and files."""
