"""Problems of our own making: families by level, the same for the same seed.

Held-out problems have other words, other values and, where a family has several, other functions than those that are
trained on: they are not only other draws.
"""
