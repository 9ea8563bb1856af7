"""Turn a Bitcoin node into a Parquet dataset: live over ZMQ and RPC."""
