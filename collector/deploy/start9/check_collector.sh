#!/bin/bash
# Say to StartOS whether every node is followed: status 0 is healthy, 60 is starting.
python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:9733/readyz', timeout=4)" && exit 0
echo "The node is not followed yet; the log of the service says why." >&2
exit 60
