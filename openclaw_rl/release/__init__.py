"""A candidate version -> the one that answers, or why not: 5 in the way of the data."""
