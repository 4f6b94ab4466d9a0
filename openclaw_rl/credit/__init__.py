"""A judged turn becomes one training sample, sometimes a second, or a skip with its reason.

loop        the loop over judged turns: reads, decides, writes one credit each
settings    what of the configuration it goes by
registry    which rule a method has: binary, opd or combine, one file each
measures    what a reward is measured against (advantages: the formulas)
hinted      an accepted hint -> the prompt that a teacher reads
rewrites    the answer that the user accepted after a change -> an answer to the first request
samples     a turn and its signals -> a row to learn from
caps        how much of a batch one user and one session may fill
"""
