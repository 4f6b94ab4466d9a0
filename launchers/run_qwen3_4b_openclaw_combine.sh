#!/bin/bash
# The older published recipe, token by token: configs/qwen3-4b-topk-select.yaml.
source "$(dirname "$0")/launch.sh"
