"""Services that sample and train for us: what we ask of one, what it costs, and what leaves the machine.

`service.py` is the seam: a sampler reads and draws tokens, a learner trains one adapter. A service is a folder with
both, over its own SDK, which is imported in workers alone. Engine and trainer are built on the seam
(`engine/cloud`, `train/cloud`) and ask for abilities, never for a name.
"""
