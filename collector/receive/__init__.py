"""Receive messages from a node: a process stamps them, and a ring keeps them for the collector."""
