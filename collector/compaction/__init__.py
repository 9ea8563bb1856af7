"""Compaction: the many small files of a closed day, or of a full span of heights, become one.

What a reader sees of a partition is its old folder or its new one, whole, at every moment and after any kill.
"""
