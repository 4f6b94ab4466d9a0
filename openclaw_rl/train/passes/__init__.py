"""Token sequences through a network, with gradient or without, within the memory there is."""
