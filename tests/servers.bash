# Sourced by `tests/run` and others: installs Debian packages, and starts private servers on free ports of loopback,
# in a temporary folder. However the command ends, the servers are stopped and the folder is deleted.

PATH=$PATH:/usr/sbin:/sbin
folder=
servers=()
job=
# Starts a job in its own session, so that it can be ended with its children.
new_session=(env --default-signal=INT,QUIT setsid)

# Servers must not run as root, so they run as nobody. They end when the command is killed.
as_server=(setpriv --pdeathsig KILL --)
if ((EUID == 0)); then
    as_server=(setpriv --reuid=nobody --regid=nogroup --clear-groups --pdeathsig KILL --)
fi

say() {
    echo "${0##*/}: $*" >&2
}

# Installs the packages of missing commands: `install_missing COMMAND:PACKAGE …`. A command may be a path. It starts
# no service: of MariaDB only the packages without one are needed, and no PostgreSQL cluster is created.
install_missing() {
    local one missing=() as_root=()
    for one in "$@"; do
        command -v "${one%%:*}" >/dev/null || [[ -e ${one%%:*} ]] || missing+=("${one##*:}")
    done
    ((${#missing[@]} > 0)) || return 0
    if ((EUID != 0)); then
        as_root=(sudo)
        [[ -t 0 ]] || as_root+=(-n)
    fi
    if ! command -v apt-get >/dev/null || ! command -v "${as_root[0]:-true}" >/dev/null; then
        say "needs ${missing[*]}; install them and run it again"
        exit 2
    fi
    say "installing ${missing[*]} with apt-get"
    "${as_root[@]}" sh -euc '
        settings=/etc/postgresql-common/createcluster.d
        forget() {
            rm -f "$settings/smsq-tests.conf"
            rmdir --ignore-fail-on-non-empty "$settings" /etc/postgresql-common 2>/dev/null || true
        }
        trap forget EXIT
        trap "exit 130" INT
        trap "exit 143" TERM
        mkdir -p "$settings"
        echo "create_main_cluster = false" >"$settings/smsq-tests.conf"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
    ' install "${missing[@]}"
}

# Unpacks the packages of missing commands into the target folder, and adds them to the path: `unpack_missing
# COMMAND:PACKAGE …`. For packages with a service, which an installation would start, now and with the machine.
unpack_missing() {
    local one missing=() tools=${CARGO_TARGET_DIR:-target}/tools
    mkdir -p "$tools"
    tools=$(cd "$tools" && pwd)
    PATH=$PATH:$tools/usr/bin
    for one in "$@"; do
        command -v "${one%%:*}" >/dev/null || missing+=("${one##*:}")
    done
    ((${#missing[@]} > 0)) || return 0
    if ! command -v apt-get >/dev/null; then
        say "needs ${missing[*]}; install them and run it again"
        exit 2
    fi
    say "unpacking ${missing[*]}"
    (
        packages=$(mktemp -d)
        trap 'rm -rf "$packages"' EXIT
        cd "$packages"
        if ! apt-get download -qq "${missing[@]}" 2>/dev/null; then
            if ((EUID == 0)); then apt-get update -qq; else sudo apt-get update -qq; fi
            apt-get download -qq "${missing[@]}"
        fi
        for one in *.deb; do
            dpkg-deb --extract "$one" "$tools"
        done
    )
}

# Runs a command as a job, and waits for it so that a signal can interrupt the wait.
run() {
    local status=0
    "${new_session[@]}" "$@" &
    job=$!
    wait "$job" || status=$?
    job=
    return "$status"
}

# How many rounds `prove_rounds` plays at the same time, and at least.
rounds_at_once=4

# Plays rounds of `smsq prove` on new databases of a server, in several processes at once; sets `$proved`, and `$failed`
# if a promise was broken: `prove_rounds SERVER_URL ask_ENGINE PORT`.
prove_rounds() {
    local index each=$(((${SMSQ_ROUNDS:-$rounds_at_once} + rounds_at_once - 1) / rounds_at_once))
    for ((index = 0; index < rounds_at_once; index++)); do
        "$2" "$3" "CREATE DATABASE proof$index"
    done
    run bash -c '
        for ((index = 0; index < $5; index++)); do
            "$1" prove --format json --database "$2/proof$index" --rounds "$3" --seed $((index * $3 + 1)) \
                >"$4/proof$index" 2>"$4/proof$index.log" &
            processes+=($!)
        done
        for process in "${processes[@]}"; do wait "$process" || failed=1; done
        exit "${failed:-0}"
    ' prove "${CARGO_TARGET_DIR:-target}/debug/smsq" "$1" "$each" "$folder" "$rounds_at_once" || {
        failed=1
        grep -hv "^round" "$folder"/proof*.log >&2 || true
    }
    proved=$(sum_of rounds)": lost "$(sum_of lost)", twice "$(sum_of twice)
}

# The sum of a figure over the processes of `prove_rounds`.
sum_of() {
    sed -nE "s/.*\"$1\": *([0-9]+).*/\1/p" "$folder"/proof? | awk '{ sum += $1 } END { print sum + 0 }'
}

# Ends all jobs and servers, and deletes the folder. A server that ends by SIGQUIT removes its shared memory.
clean_up() {
    local status=$? server deadline
    trap '' INT TERM HUP
    trap - EXIT
    # The shell would print which of its jobs were killed.
    exec 2>/dev/null
    [[ -z $job ]] || kill -KILL -- "-$job" || true
    for server in "${servers[@]}"; do
        kill -QUIT "$server" || true
    done
    deadline=$((SECONDS + 20))
    for server in "${servers[@]}"; do
        while kill -0 "$server" && ((SECONDS < deadline)); do
            sleep 0.05
        done
        kill -KILL -- "-$server" || true
    done
    [[ -z $folder ]] || rm -rf -- "$folder"
    exit "$status"
}

# Keeps temporary files in memory where there is room: a disk that stalls for seconds delays every commit.
use_memory() {
    local kib
    [[ -z ${TMPDIR:-} && -w /dev/shm ]] || return 0
    ! findmnt --noheadings --output OPTIONS --target /dev/shm | grep -q noexec || return 0
    kib=$(df --output=avail --block-size=1K /dev/shm | tail -n 1)
    ((kib < 8 * 1024 * 1024)) || export TMPDIR=/dev/shm
}

open_folder() {
    use_memory
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    folder=$(mktemp -d "${TMPDIR:-/tmp}/smsq-tests.XXXXXX")
    chmod 755 "$folder"
}

# A folder that belongs to the servers.
own_folder() {
    mkdir -p "$1"
    ((EUID != 0)) || chown nobody:nogroup "$1"
    chmod 700 "$1"
}

# Prints a free port below the ephemeral ports.
free_port() {
    local port
    while true; do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

# Starts a server and waits until the probe succeeds: `start LOG PROBE SERVER …`. Sets `$started` to its process id.
start() {
    local log=$1 probe=$2 deadline=$((SECONDS + 120))
    shift 2
    "${new_session[@]}" "${as_server[@]}" "$@" >>"$log" 2>&1 &
    started=$!
    servers+=("$started")
    # The shell would print that it was killed.
    disown "$started"
    until $probe >/dev/null 2>&1; do
        if ! kill -0 "$started" 2>/dev/null || ((SECONDS > deadline)); then
            say "\`$1\` does not start:"
            tail -n 20 "$log" >&2
            return 1
        fi
        sleep 0.1
    done
}

# Creates a certificate for loopback, and the authority that has signed it: `$folder/authority.pem`.
make_certificate() {
    local key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes) one
    (
        cd "$folder"
        openssl req -x509 "${key[@]}" -days 2 -subj "/CN=smsq tests" -keyout authority.key -out authority.pem
        openssl req "${key[@]}" -subj /CN=localhost -keyout server.key -out server.csr
        openssl x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
            -out server.pem -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1")
    ) 2>"$folder/openssl.log" || { cat "$folder/openssl.log" >&2; return 1; }
    for one in "$@"; do
        install -m 600 "$folder/server.key" "$folder/server.pem" "$folder/$one"
        ((EUID != 0)) || chown nobody:nogroup "$folder/$one"/server.*
    done
}

# Prints the folder of PostgreSQL's programs: `$postgres`, or that of the newest installed one.
postgres_programs() {
    local newest
    newest=$(printf '%s\n' /usr/lib/postgresql/*/bin/postgres | sort -V | tail -n 1)
    echo "${postgres:-${newest%/postgres}}"
}

# Creates the system tables of PostgreSQL in `$1/data`, for the user smsq without a password; other roles need one.
prepare_postgres() {
    local initdb icu=(--locale-provider=icu --icu-locale=en)
    initdb=$(postgres_programs)/initdb
    # PostgreSQL before 15 has ICU only for columns.
    [[ $("$initdb" --help) == *--icu-locale* ]] || icu=()
    "${as_server[@]}" "$initdb" -D "$1/data" -U smsq -A trust -E UTF8 --locale=C.UTF-8 \
        "${icu[@]}" --no-sync >"$1/log" 2>&1 || { cat "$1/log" >&2; return 1; }
    printf 'host all %s 127.0.0.1/32 %s\n' smsq trust all scram-sha-256 >"$1/data/pg_hba.conf"
}

# Starts PostgreSQL in a folder and on a port, with further options: `start_postgres FOLDER PORT OPTION …`. It does
# not sync its disk, unless the options change that.
start_postgres() {
    local home=$1 port=$2 programs
    shift 2
    programs=$(postgres_programs)
    start "$home/log" "postgres_answers $port" "$programs/postgres" -D "$home/data" \
        -c listen_addresses=127.0.0.1 -c port="$port" -c unix_socket_directories= \
        -c ssl=on -c ssl_cert_file="$home/server.pem" -c ssl_key_file="$home/server.key" \
        -c password_encryption=scram-sha-256 -c max_connections=300 -c shared_buffers=32MB \
        -c fsync=off -c full_page_writes=off -c synchronous_commit=off "$@"
}

# Starts PgBouncer with transaction pooling in front of PostgreSQL: `start_pgbouncer FOLDER PORT SETTING …`. Further
# settings replace the first ones.
start_pgbouncer() {
    local home=$1 port=$2
    shift 2
    own_folder "$home"
    cat >"$home/pgbouncer.ini" <<-INI
	[databases]
	* = host=127.0.0.1 port=${SMSQ_TEST_POSTGRES##*:}
	[pgbouncer]
	listen_addr = 127.0.0.1
	listen_port = $port
	unix_socket_dir =
	auth_type = trust
	auth_file = $home/users
	pool_mode = transaction
	INI
    (($# == 0)) || printf '%s\n' "$@" >>"$home/pgbouncer.ini"
    echo '"smsq" "smsq"' >"$home/users"
    ((EUID != 0)) || chown nobody:nogroup "$home"/*
    start "$home/log" "postgres_answers $port" pgbouncer "$home/pgbouncer.ini"
    export SMSQ_TEST_PGBOUNCER=postgres://smsq:smsq@127.0.0.1:$port
}

ask_postgres() {
    psql -qAtX "postgres://smsq:smsq@127.0.0.1:$1/postgres" -c "$2"
}

postgres_answers() {
    ask_postgres "$1" "SELECT 1"
}

# Creates the system tables of MariaDB in `$1/data`, and its user smsq; `$2`: the folder of its programs, by default
# those that are installed.
prepare_mariadb() {
    write_users
    "${as_server[@]}" "${2:+$2/bin/}mariadb-install-db" --no-defaults ${2:+--basedir="$2"} --datadir="$1/data" \
        --extra-file="$folder/users.sql" --skip-test-db --skip-name-resolve \
        --auth-root-authentication-method=normal >"$1/log" 2>&1 || { cat "$1/log" >&2; return 1; }
}

# The same with the MySQL in the folder `$2`.
prepare_mysql() {
    write_users
    "${as_server[@]}" "$2/sbin/mysqld" --no-defaults --datadir="$1/data" --initialize-insecure --secure-file-priv= \
        --init-file="$folder/users.sql" >"$1/log" 2>&1 || { cat "$1/log" >&2; return 1; }
}

write_users() {
    cat >"$folder/users.sql" <<-SQL
	FLUSH PRIVILEGES;
	CREATE USER smsq@'127.0.0.1' IDENTIFIED BY 'smsq';
	GRANT ALL ON *.* TO smsq@'127.0.0.1' WITH GRANT OPTION;
	SQL
}

# Starts MariaDB in a folder and on a port, with further options: `start_mariadb FOLDER PORT OPTION …`. It is ready
# when the command `$ready` succeeds, by default a query. `$mysqld`: the program, if it is not the installed one. Its
# temporary files have their own folder, because a server deletes those of others when it starts.
start_mariadb() {
    local home=$1 port=$2
    shift 2
    start "$home/log" "${ready:-mariadb_answers $port}" "${mysqld:-mariadbd}" --no-defaults --datadir="$home/data" \
        --tmpdir="$home" --socket="$home/socket" --pid-file="$home/pid" \
        --bind-address=127.0.0.1 --port="$port" --skip-name-resolve --character-set-server=utf8mb4 \
        --max-connections=300 --performance-schema=0 --innodb-buffer-pool-size=64M \
        --innodb-flush-log-at-trx-commit=0 --innodb-flush-method=nosync --innodb-doublewrite=0 \
        --max-allowed-packet=1M "$@"
}

ask_mariadb() {
    MYSQL_PWD=smsq mariadb --no-defaults --protocol=TCP -h 127.0.0.1 -P "$1" -u smsq -N -B -e "$2"
}

mariadb_answers() {
    ask_mariadb "$1" "SELECT 1"
}

# Starts Redis without persistence in a new folder: `start_redis FOLDER PORT OPTION …`. Debian's package of tools
# contains the server under another name, without a service.
start_redis() {
    local home=$1 port=$2
    shift 2
    own_folder "$home"
    ln -s "$(command -v redis-check-rdb)" "$home/redis-server"
    start "$home/log" "redis_answers $port" "$home/redis-server" --bind 127.0.0.1 --port "$port" \
        --dir "$home" --save "" --appendonly no "$@"
}

redis_answers() {
    [[ $(redis-cli -p "$1" PING) == PONG ]]
}
