"""Steps that a service computes: the loss is ours, passes and optimiser are its own."""
