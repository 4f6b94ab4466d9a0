#!/bin/bash
set -e
errors=$(awk '$4 >= 500' "$LOG_NAME" | wc -l)
slowest=$(sort -k5,5 -n "$LOG_NAME" | tail -1 | cut -d' ' -f3)
paths=$(cut -d' ' -f3 "$LOG_NAME" | sort -u | wc -l)
printf '{"errors": %d, "slowest": "%s", "paths": %d}\n' "$errors" "$slowest" "$paths" > report.json
