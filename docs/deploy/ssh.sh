#!/usr/bin/env bash
# A worker on each of these machines, until this script ends. `gangline run` starts it, and ends it:
#     gangline run --broker auto --start-workers './ssh.sh node1 node2' -- ./work.sh {} ::: a b c
# Each machine has ~/.cargo/bin/gangline. The address of the broker goes through the connection, where no list of processes
# shows it.
set -euo pipefail

# The worker ends in order when the connection does: it finishes what it has begun.
start='read -r GANGLINE_NATS; export GANGLINE_NATS GANGLINE_NATS_INSECURE=1 PATH=$PATH:$HOME/.cargo/bin
gangline worker --serve commands </dev/null & worker=$!
cat >/dev/null; kill -TERM $worker; wait $worker'
for host in "$@"; do
    { printf '%s\n' "$GANGLINE_NATS" && exec sleep infinity; } | ssh "$host" "$start" &
done
trap 'kill $(jobs -p) 2>/dev/null' INT TERM HUP
# The first is ended by a signal, the second waits until all connections are closed.
wait || true
wait
