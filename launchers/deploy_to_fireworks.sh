#!/bin/bash
# Policy, teachers and training on Fireworks; the gateway and everything that is learned stay here.
source "$(dirname "$0")/launch.sh"
