#!/bin/bash
cat > /app/average.py <<'PYTHON'
"""Prints the mean of the numbers in a file, one a line."""

import sys


def main():
    with open(sys.argv[1]) as file:
        numbers = [float(line) for line in file if line.strip()]
    print(f"{sum(numbers) / len(numbers):.2f}" if numbers else "none")


main()
PYTHON
