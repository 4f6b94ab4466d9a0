"""The box that an agent works in. Nothing runs outside one; where none can be made, the reason names the remedy."""
