"""From the bytes of blocks and transactions to verified rows; no node is asked and no file is written."""
