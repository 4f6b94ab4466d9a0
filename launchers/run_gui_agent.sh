#!/bin/bash
# GUI agents: refused until they are there.
source "$(dirname "$0")/launch.sh"
