#!/bin/bash
passed=0
expect() {
  printf "$1" > /tmp/numbers
  if [ "$(python3 /app/average.py /tmp/numbers)" = "$2" ]; then
    passed=$((passed + 1))
  else
    echo "wrong for the numbers $(printf "$1" | tr '\n' ' ')"
  fi
}
expect "1\n2\n4\n" 2.33
expect "5\n" 5.00
expect "\n10\n\n20\n\n" 15.00
expect "" none
python3 -c "print($passed / 4)" > /logs/verifier/reward.txt
