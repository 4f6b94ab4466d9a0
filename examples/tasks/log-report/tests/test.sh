#!/bin/bash
python3 /tests/test_report.py
