"""Merge the datasets of several collectors, each with a clock of its own, into one dataset."""
