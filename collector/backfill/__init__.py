"""Fill the dataset with blocks of the past from a node's block files or its RPC.

A block goes through `collector.codec.chunk` (bytes to arrays) and `collector.codec.rows` (arrays to rows), as
in the live collector. `collector.codec.block` and `collector.codec.verify` say why a block is refused.
"""
