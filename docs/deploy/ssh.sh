#!/usr/bin/env bash
# A worker on each of these machines, until Ctrl-C: ./ssh.sh node1 node2
# Each machine has ~/app, ~/.cargo/bin/gangline, and ~/worker.env with GANGLINE_NATS=... and what else a worker needs.
set -euo pipefail

# With a terminal there, the end of a connection reaches the worker as SIGHUP: it finishes what it has begun.
start='set -a; . ./worker.env; PATH=$PATH:$HOME/.cargo/bin; exec gangline worker -- ./app'
for host in "$@"; do
    ssh -tt "$host" "$start" </dev/null &
done
trap 'kill $(jobs -p) 2>/dev/null' INT TERM HUP
# The first is ended by a signal, the second waits until all connections are closed.
wait || true
wait
