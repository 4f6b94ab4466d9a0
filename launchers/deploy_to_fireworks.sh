#!/bin/bash
# Training on Fireworks: refused until that backend is there.
source "$(dirname "$0")/launch.sh"
