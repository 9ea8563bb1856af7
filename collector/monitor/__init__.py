"""Show how the collector stands: metrics, health, an HTTP server for both, and systemd."""
