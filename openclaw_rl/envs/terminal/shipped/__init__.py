"""Tasks that come with the terminal track: made from a seed, and written as Harbor task directories.

sets        which sets there are, their splits, and where they are written
commands    one command does it; for models that are small
files       several commands, answers in files
draft       a task before it is written: what there is, what is asked, what is there when it is done
words       names that tasks are made of; those of held-out tasks are never trained on
"""
