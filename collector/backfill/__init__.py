"""Fill the dataset with blocks of the past from a node's block files or its RPC.

Nothing here decides what a row holds: that is `collector.blocks`, for which this package is a faster way
to the same rows. A block goes through `chunk` (bytes to arrays) and `encode` (arrays to Arrow); of what the
fast way refuses, the plain one is asked to say why.
"""
