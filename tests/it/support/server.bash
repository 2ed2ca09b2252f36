#!/usr/bin/env bash
# A database server of one test, which the test may stop at any moment: `server.bash postgres|mysql` prints its URL,
# and obeys each line of its standard input with a line of its own: `freeze`, `thaw`, `crash` and `start`. It ends
# with its input. What is committed survives a crash.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
source tests/servers.bash
kind=$1
open_folder
home=$folder/$kind
own_folder "$home"
port=$(free_port)
if [[ $kind == postgres ]]; then
    make_certificate postgres
    prepare_postgres "$home"
else
    prepare_mariadb "$home"
fi

start_server() {
    servers=()
    if [[ $kind == postgres ]]; then
        start_postgres "$home" "$port" -c synchronous_commit=on
    else
        start_mariadb "$home" "$port" --innodb-flush-log-at-trx-commit=2
    fi
}

# The server first: it starts no process meanwhile.
signal_all() {
    kill "-$1" "$started"
    pgrep -P "$started" | xargs -r kill "-$1" 2>/dev/null || true
}

crash() {
    local deadline=$((SECONDS + 60)) signal=KILL
    # This is how PostgreSQL ends its processes, too, without a checkpoint.
    [[ $kind == mysql ]] || signal=QUIT
    kill "-$signal" "$started"
    while kill -0 "$started" 2>/dev/null && ((SECONDS < deadline)); do
        sleep 0.05
    done
}

start_server
echo "$kind://smsq:smsq@127.0.0.1:$port"
while read -r line; do
    case "$line" in
        freeze) signal_all STOP ;;
        thaw) signal_all CONT ;;
        crash) crash ;;
        start) start_server ;;
    esac
    echo "$line"
done
