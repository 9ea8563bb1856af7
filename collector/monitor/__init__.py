"""Report the state of the running collector: metrics, health, an HTTP server, messages to systemd."""
