"""From a turn and what followed it to a verdict, in the order of the data.

evidence    what a judge sees
loop        leases turns, asks the judge, stores judgements (canaries: whether it is to be believed; registry: which)
explicit    what people said outright comes first; chain: the next judge when one cannot say
rules       what was said and what tools returned, no model (reactions, clauses, tool_results; words/*.toml)
panel       votes of a model (prompting, parsing, majority, prompts/*.txt)
endpoint    the model behind an OpenAI-compatible URL; sampled: behind an engine of ours
function    a reward function of the user's own
hints       which hints are accepted
"""
