"""What is true of SQLite only: the file, its lock, its faults, its one writer."""
