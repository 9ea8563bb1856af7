"""Turn the bytes of blocks and transactions into verified rows, without a node and without writing files."""
