#!/bin/bash
[ "$(cat shopping.txt)" = "milk
bread" ] && reward=1 || reward=0
echo "{\"reward\": $reward}" > /logs/verifier/reward.json
