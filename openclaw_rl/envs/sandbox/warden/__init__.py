"""The process that makes boxes: small, plain Python, with nothing of ours in its memory and no environment.

plan        what a box is to be, as it comes over the wire
service     the loop: a box on request, its end, its files; and the end of all when nobody listens any more
uids        who is root in a box
birth       one box, from a fork to the first process in it
root        the mounts that become its root
cgroup      memory and processes of a box, where the machine lets us count them
memory      the same where it does not
init        process 1 of a box: it starts commands and buries the dead
program     one command, from a fork to its exec: limits, capabilities, forbidden calls
forbidden   the system calls that no program of a box may make
porter      files, in and out
layer       what a box wrote, as a folder
kernel      system calls that Python has no names for

It is started with the standard library alone (`python -I -S`), so nothing here may import what is not in it. A box dies
with it, and it dies with whoever started it.
"""
