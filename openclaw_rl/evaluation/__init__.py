"""Is it better, and what did that cost: simulated users, detectors and measures for whatever answers.

questions   what simulated users ask, apart for training and for measuring
users       people with a hidden preference; detectors: what can be read off a reply without a model
chat        whoever answers; memory: the opponent that writes preferences down instead of learning them
sessions    one conversation of a simulated user, and how many of them until a preference is met
roles       student, assistant and teacher with their tasks
capability  what the model knew before and must still know
measures    means, shares and differences with their intervals

Speaks HTTP to a running gateway, or `Engine`; knows no store and no torch.
"""
