"""Fill the dataset with blocks of the past from a node's block files or its RPC.

A block goes through `chunk` (bytes to arrays) and `encode` (arrays to Arrow), as one does that comes live
(`collector.blocks`); of what is refused here, `collector.decode` and `collector.verify` are asked to say why.
"""
