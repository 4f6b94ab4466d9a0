"""A judged turn becomes one training sample, sometimes a second, or a skip with its reason.

binary      scores teach            one file for each rule, `training.method`
opd         hints teach
combine     both teach
registry    which rule a method has, and the other settings of credit

loop        the loop over judged turns: reads, decides, writes one credit each
measures    what a reward is measured against, `training.advantage` (advantages: the formulas)
groups      a complete group of attempts at a task -> the credits of all their turns
hinted      an accepted hint -> the prompt that a teacher reads
rewrites    the answer that the user accepted after a change -> an answer to the first request
practice    a wish from several conversations -> exercises on everyday questions
samples     a turn and its signals -> a row to learn from
"""
