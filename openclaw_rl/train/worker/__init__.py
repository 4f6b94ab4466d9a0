"""The trainer process: orders in, optimiser steps and checkpoints out."""
