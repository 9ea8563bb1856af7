"""Batch double SHA-256 and Keccak, on a GPU or the CPU."""
