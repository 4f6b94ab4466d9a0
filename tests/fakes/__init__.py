"""Stand-ins for engines, trainers and rows, each written once."""
