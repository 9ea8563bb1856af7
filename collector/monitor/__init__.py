"""Report the state of the collector: metrics, health, an HTTP server for both, and word to systemd."""
