"""Follow blocks: their bodies, arrivals and fees, and which of them the dataset holds."""
