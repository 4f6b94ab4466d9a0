#!/bin/bash
# Software engineering agents: openclaw-rl env run swe.
source "$(dirname "$0")/launch.sh"
