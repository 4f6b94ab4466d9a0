#!/bin/bash
# Terminal agents: openclaw-rl env run terminal.
source "$(dirname "$0")/launch.sh"
