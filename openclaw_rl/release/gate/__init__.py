"""What a candidate must pass before it answers: behaviour on probes, and proof that it is served."""
