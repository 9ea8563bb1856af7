"""Answer questions about mining pools in SQL over the collector's dataset."""
