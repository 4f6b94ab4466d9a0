#!/bin/bash
# On-policy distillation, from hints alone: configs/opd.yaml.
source "$(dirname "$0")/launch.sh"
