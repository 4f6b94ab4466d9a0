"""A repository at a commit, a problem, and tests that fail until it is solved; in the order of the data.

rows          records in SWE-bench's format -> what a task is
interpreter   the Python and the packages that a repository runs with
trees         a row -> the tree that the agent gets, and the tree that it is graded in
tools         what the agent does in its box
patches       the agent's tree against the one it got -> what counts of it
suite         a tree in a box -> which tests pass
grading       all of these -> a reward, in a box where the agent has never been
room, environment   the same behind the seams of `protocols`
mutations, making   any tested repository -> rows: faults of one place each, with tests that find them
demo/         a few rows of our own, made by `making`
"""
