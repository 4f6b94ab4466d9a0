#!/bin/bash
# Tool-call agents: openclaw-rl env run toolcall.
source "$(dirname "$0")/launch.sh"
