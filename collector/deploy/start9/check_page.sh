#!/bin/bash
# Say to StartOS whether the page listens: status 0 is healthy, 60 is starting.
if [ ! -f /data/build/analysis.duckdb ]; then
    echo "The first results are not built yet." >&2
    exit 60
fi
exec python -c "import socket; socket.create_connection(('127.0.0.1', 9744), timeout=4).close()"
