"""Sequences with common beginnings become one batch in which every distinct token is computed once.

fold.py       sequences -> paths: what follows what, and where each token of an answer is predicted from
parts.py      paths -> the rectangles and triangles of attention
attention.py  `network.Attend` over these parts, forward and backward
kernels.py    one part on a CPU, on a GPU
"""
