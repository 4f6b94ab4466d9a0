"""From a turn and what followed it to a verdict, in the order of the data.

loop          leases turns, asks the judges, stores judgements; canaries: whether a judge is to be believed
evidence      what a judge sees
registry      which judges are configured; compose: how their verdict comes about, with explicit feedback first
rules/        the person's words, read by word lists, no model; tool_results: what tools returned
model/        votes of a model: panel, prompting, parsing, majority; through endpoint (a URL) or sampled (an engine)
function      a reward function of the user's own
hints         which hints are accepted
"""
