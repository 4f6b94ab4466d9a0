#!/bin/bash
mkdir archive
mv *.txt archive/
