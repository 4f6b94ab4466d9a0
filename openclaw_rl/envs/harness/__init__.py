"""Who acts in a room: a small agent of ours, or a real program in the box."""
