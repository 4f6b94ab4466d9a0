#!/bin/bash
right=0
for name in shopping today yesterday; do
  [ -f "archive/$name.txt" ] && [ ! -e "$name.txt" ] && right=$((right + 1))
done
case $right in 3) reward=1 ;; 2) reward=0.67 ;; 1) reward=0.33 ;; *) reward=0 ;; esac
echo "{\"reward\": $reward, \"moved\": $right}" > /logs/verifier/reward.json
