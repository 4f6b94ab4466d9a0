#!/bin/bash
# Tool-call agents: refused until environments are there.
source "$(dirname "$0")/launch.sh"
