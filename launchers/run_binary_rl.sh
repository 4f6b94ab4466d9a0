#!/bin/bash
# Binary RL, from scores alone: configs/binary.yaml.
source "$(dirname "$0")/launch.sh"
