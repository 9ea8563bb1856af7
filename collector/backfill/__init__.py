"""Fill the dataset with blocks of the past from a node's block files or its RPC.

A block goes through `chunk` (bytes to arrays) and `encode` (arrays to Arrow), as one does that comes live
(`collector.codec.rows`); of what is refused here, `collector.codec.decode` and `collector.codec.verify` are
asked to say why.
"""
