"""Samples become gradients, gradients become a candidate version: 4 in the way of the data."""
