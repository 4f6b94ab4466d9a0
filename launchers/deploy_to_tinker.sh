#!/bin/bash
# Training on Tinker: refused until that backend is there.
source "$(dirname "$0")/launch.sh"
