"""The terminal track: tasks that are done in a shell. Bring Harbor task directories, or begin with those that we ship.

environment   sources, tasks and rooms
room          one attempt: the tools, and the reward
shipped/      procedural tasks, written as Harbor task directories
"""
