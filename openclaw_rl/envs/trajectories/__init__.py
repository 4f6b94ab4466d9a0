"""Sessions as files that others read, and theirs as sessions: ATIF and OpenEnv's TrainingTrace. Pure functions."""
