#!/bin/bash
# Scores and hints: configs/combine.yaml, or configs/combine-lora.yaml with --lora.
source "$(dirname "$0")/launch.sh"
