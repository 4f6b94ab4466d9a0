#!/bin/bash
echo bread >> shopping.txt
