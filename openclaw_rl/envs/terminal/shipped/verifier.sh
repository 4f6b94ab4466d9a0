#!/bin/bash
# The share of the goals that are as expected, or 0 where anything else is not as it was.
expected=/tests/expected
found=$PWD

same() {
  if [ -d "$expected/$1" ]; then
    [ -d "$found/$1" ]
  elif [ -f "$expected/$1" ]; then
    [ -f "$found/$1" ] && [ "$(cat "$expected/$1")" = "$(cat "$found/$1")" ]  # newlines at its end do not count
  else
    [ ! -e "$found/$1" ] && [ ! -L "$found/$1" ]
  fi
}

total=0
held=0
while IFS= read -r goal; do
  total=$((total + 1))
  if same "$goal"; then held=$((held + 1)); else echo "not as asked: $goal"; fi
done < /tests/goals

while IFS= read -r path; do
  if ! grep -qxF -- "$path" /tests/goals && ! same "$path"; then
    echo "not as it was: $path"
    held=0
  fi
done < <({ cd "$expected" && find . -mindepth 1; cd "$found" && find . -mindepth 1; } | sed 's|^\./||' | sort -u)

awk "BEGIN { print $held / $total }" > /logs/verifier/reward.txt
