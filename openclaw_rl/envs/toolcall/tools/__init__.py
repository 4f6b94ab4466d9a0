"""What a call of the agent reaches. Whatever is not our own code runs in a box."""
