"""Agents at work on tasks, in the order of the data: a task is leased, attempted in a box, and graded.

registry      which environments and harnesses there are: a track is one file and one line
tasks/        formats that people bring: Harbor directories, SWE-bench rows, OpenEnv servers
trajectories/ sessions as files in the formats of others, and theirs as sessions
terminal/ swe/ toolcall/   the tracks: loader, prompt, tools, reward, and tasks that run on a laptop
sandbox/      the box that an agent works in: bubblewrap, Docker
harness/      who acts: a small agent of ours, or a real program in the box
leases        rooms on lease; server and client: the same over HTTP
collect       groups of attempts, in parallel, each through the gateway with a key of its own
"""
