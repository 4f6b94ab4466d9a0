#!/bin/bash
# The published recipe on all weights of Qwen3-4B: configs/qwen3-4b-topk-select.yaml.
source "$(dirname "$0")/launch.sh"
