"""Is it better, and what did that cost: simulated users, detectors and measures for whatever answers.

questions   what simulated users ask, apart for training and for measuring
users       people with a hidden preference; detectors: what can be read off a reply without a model
chat        whoever answers; sessions: one conversation of a simulated user with it
capability  what the model knew before and must still know
exam        a version's answers to held-out questions; comparing: what changed between two versions
measures    means, shares and differences with their intervals

Speaks HTTP to a running gateway, or `Engine`; knows no store and no torch.
"""
