#!/bin/bash
# Software engineering agents: refused until environments are there.
source "$(dirname "$0")/launch.sh"
