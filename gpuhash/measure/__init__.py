"""Measure hashing: throughput, energy, and the limit of the machine."""
