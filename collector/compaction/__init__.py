"""Replace files of a dataset while others read it: `compact` merges small files, `mend` fills null fees.

A reader sees the old folder of a partition or the new one, whole, at every moment and after any kill.
"""
