#!/bin/bash
# Run collector, hourly build and page until StartOS stops the service, or until one of them ends.
set -euo pipefail
umask 077

# Before anything is started: StartOS may stop the service at any moment.
stop() {
    trap '' TERM INT
    kill -TERM $(jobs -p) 2> /dev/null || true
    wait
}
trap 'stop; exit 0' TERM INT

config=/data/start9/config.yaml
value() { sed -nE "s/^$1: *[\"']?([^\"']*)[\"']?\$/\1/p" "$config"; }

# The credentials go into a file: other processes can read the words of a command.
printf 'rpcuser=%s\nrpcpassword=%s\n' "$(value rpc-user)" "$(value rpc-password)" > /data/bitcoin.conf
export POOL_COLLECTOR_NODE='[{"name": "start9", "conf": "/data/bitcoin.conf",
    "rpc_url": "http://bitcoind.embassy:8332", "allow_remote_rpc": true,
    "zmq": {"sequence": "tcp://bitcoind.embassy:28333", "rawtx": "tcp://bitcoind.embassy:28333",
            "rawblock": "tcp://bitcoind.embassy:28332"}}]'
POOL_ANALYSIS_TOKEN=$(value page-password)
export POOL_ANALYSIS_TOKEN
database=/data/build/analysis.duckdb

pool-collector run &
collector=$!

while true; do
    pool-analysis build --dataset /data/dataset --database "$database" || true
    sleep 3600
done &

# The page begins with the first build.
until [ -f "$database" ]; do sleep 10; done && exec pool-analysis serve \
    --database="$database" --address=0.0.0.0:9744 --allow-remote \
    --host="$(value tor-address)" --host="$(value lan-address)" --collector=http://127.0.0.1:9733 &
page=$!

# bash's own wait for the first of two does not know a process that ended before it was asked.
while kill -0 "$collector" && kill -0 "$page"; do
    sleep 1 &
    wait $!
done 2> /dev/null
stop
exit 1
