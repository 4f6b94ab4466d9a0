"""Prints the mean of the numbers in a file, one a line."""

import sys


def main() -> None:
    with open(sys.argv[1]) as file:
        lines = file.read().split("\n")
    total = sum(float(line or 0) for line in lines)
    print(f"{total / len(lines):.2f}")


main()
