# cluster.sh: what the tests, the demo and the benchmark share: packages, a private PostgreSQL,
# a throwaway cluster.
#
# Sourced by bash scripts, never run.  Call in this order:
#
#   packages_install test|demo|bench|e2e [NEED…]
#                                       installs with apt what is missing, and nothing else
#   extension_install SRC [VAR=VALUE…]  builds a copy of SRC, with make variables, and installs it
#   cluster_start [setting=value…]      starts a server with these lines in its postgresql.conf
#
# Afterwards psql and the other programs of the chosen major are first in PATH, and PG_CONFIG,
# PGDATA, PGHOST, PGPORT, PGUSER and PGDATABASE are exported: a bare `psql` is connected to the
# throwaway server as its superuser.
#
#   as_server_user CMD…             runs CMD as the user who owns the server and all of $RUN_DIR
#   watched CMD…                    runs CMD, and ends it with its children if the script must end
#   cluster_stop [fast|immediate]   stops the server; `cluster_start` may follow, for an empty one
#   die MESSAGE…                    prints the message and exits
#
# Everything lives in one directory, $RUN_DIR: a copy of the PostgreSQL installation made of
# symbolic links and of real programs (PostgreSQL finds its files relative to its programs, so
# the copy is complete and the extension is installed into it without touching the machine's), a
# copy of the source in $RUN_DIR/src, the cluster, its socket and its log.  The server listens
# on that socket only, so no port can collide; for clients that know TCP only, a script may set
# cluster_address to 127.0.0.1, and it listens there too, on a free port.  When the script exits,
# however it does, every server whose data directory lies in $RUN_DIR is stopped and the
# directory is removed.  Scripts that source this file set no traps of their own.

RUN_DIR=
server_user=
watched_group=
cluster_address=

# One major is chosen: PG_CONFIG's when it is given, else the newest of these whose development
# package is installed, else the one that Debian calls "postgresql".
oldest_major=15
newest_major=18

export LC_ALL=C.UTF-8
unset MAKEFLAGS MFLAGS MAKELEVEL
for name in "${!PG@}"; do
    [ "$name" = PG_CONFIG ] || unset "$name"
done

die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# Root's own PATH may name programs that the server's user cannot run.
if [ -n "${PG_CONFIG-}" ]; then
    PG_CONFIG=$(command -v "$PG_CONFIG") || die "PG_CONFIG is not a program"
fi
if [ "$(id -u)" = 0 ]; then
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
fi

# ---- packages ----

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

pg_major() {
    "$1" --version | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p'
}

newest_installed_major() {
    local major
    for ((major = newest_major; major >= oldest_major; major--)); do
        [ -e "/usr/include/postgresql/$major/server/postgres.h" ] && echo $major && return
    done
}

debian_major() {
    apt-cache depends postgresql 2>/dev/null |
        sed -n 's/^ *Depends: postgresql-\([0-9][0-9]*\)$/\1/p' | head -n 1
}

is_package_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

is_package_known() {
    apt-cache show "$1" >/dev/null 2>&1
}

# packages_missing KIND MAJOR [NEED…]: the packages among those needed of which a part is not
# there.  A NEED is a package, or COMMAND:PACKAGE where any program of that name will do.
packages_missing() {
    local kind=$1 major=$2 need lib="/usr/lib/postgresql/$2" share="/usr/share/postgresql/$2"

    for need in "${@:3}"; do
        case $need in
            *:*) command -v "${need%%:*}" >/dev/null || echo "${need#*:}" ;;
            *) is_package_installed "$need" || echo "$need" ;;
        esac
    done
    command -v make >/dev/null || echo make
    command -v gcc >/dev/null || echo gcc
    [ -e /usr/include/stdio.h ] || echo libc6-dev
    [ -e /usr/include/openssl/evp.h ] || echo libssl-dev
    command -v python3 >/dev/null || echo python3
    if [ -z "${given_pg_config-}" ]; then
        [ -x "$lib/bin/initdb" ] || echo "postgresql-$major"
        [ -e "/usr/include/postgresql/$major/server/postgres.h" ] ||
            echo "postgresql-server-dev-$major"
    else
        share=$("$given_pg_config" --sharedir)
    fi
    if [ "$kind" = test ]; then
        [ -e "$share/extension/pgtap.control" ] || echo "postgresql-$major-pgtap"
        # not every suite has it for every major; its test is skipped then
        [ -e "$share/extension/pg_cron.control" ] || ! is_package_known "postgresql-$major-cron" ||
            echo "postgresql-$major-cron"
        command -v pg_prove >/dev/null || echo libtap-parser-sourcehandler-pgtap-perl
        command -v prove >/dev/null || echo perl
        perl -MIPC::Run -e 1 2>/dev/null || echo libipc-run-perl
        python3 -c 'import psycopg' 2>/dev/null || echo python3-psycopg
        command -v promtool >/dev/null || echo prometheus
        command -v prometheus-postgres-exporter >/dev/null || echo prometheus-postgres-exporter
    fi
    if [ "$kind" = bench ]; then
        command -v valgrind >/dev/null || echo valgrind
    fi
    if [ "$kind" = e2e ]; then
        [ -x /usr/bin/python3 ] || echo python3
    fi
}

service_units() {
    (cd /lib/systemd/system 2>/dev/null && printf '%s\n' *.service | sort)
}

# apt-get install, without what Debian's packages of servers would start, now or at the next
# boot, and without the cluster on port 5432 that the one of PostgreSQL would make
apt_install() {
    local conf=/etc/postgresql-common/createcluster.d/idem_action_tests.conf
    local policy=/usr/sbin/policy-rc.d units unit log rc=0

    log=$(mktemp)
    units=$(service_units)
    # somebody else's policy is theirs
    if [ -e $policy ]; then
        policy=
    else
        printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
        as_root chmod 755 $policy
    fi
    as_root mkdir -p "${conf%/*}"
    echo 'create_main_cluster = false' | as_root tee "$conf" >/dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null >"$log" 2>&1 || rc=$?
    [ $rc = 0 ] || cat "$log" >&2
    rm -f "$log"
    [ -z "$policy" ] || as_root rm -f "$policy"
    for unit in $(comm -13 <(echo "$units") <(service_units)); do
        as_root systemctl disable "$unit" >/dev/null 2>&1
    done
    as_root rm -f "$conf"
    as_root rmdir --ignore-fail-on-non-empty "${conf%/*}"
    return $rc
}

packages_install() {
    local kind=$1 major missing wanted given_pg_config=${PG_CONFIG-}
    local needs=("${@:2}")

    if [ -n "$given_pg_config" ]; then
        major=$(pg_major "$given_pg_config")
        [ -e "$("$given_pg_config" --includedir-server)/postgres.h" ] ||
            die "the development files of $PG_CONFIG (postgresql-server-dev-$major) are missing"
        [ -x "$("$given_pg_config" --bindir)/initdb" ] ||
            die "the server of $PG_CONFIG (postgresql-$major) is missing"
    else
        major=$(newest_installed_major)
    fi

    missing=$([ -z "$major" ] || packages_missing "$kind" "$major" "${needs[@]}")
    if [ -z "$major" ] || [ -n "$missing" ]; then
        wanted=${missing:-PostgreSQL $oldest_major or later with its development files}
        command -v apt-get >/dev/null ||
            die "missing, and there is no apt-get to install it:" $wanted
        as_root true 2>/dev/null ||
            die "run this as root or with sudo, since packages must be installed:" $wanted
        as_root apt-get update -qq -o DPkg::Lock::Timeout=300 </dev/null ||
            echo "apt-get update failed; going on with the package lists that are there" >&2
        if [ -z "$major" ]; then
            major=$(debian_major)
            [ -n "$major" ] || die "apt knows no package \"postgresql\""
            [ "$major" -ge $oldest_major ] ||
                die "PostgreSQL $oldest_major or later is needed, and this system has $major"
        fi
        missing=$(packages_missing "$kind" "$major" "${needs[@]}")
        echo "installing" $missing
        apt_install $missing || die "apt-get could not install" $missing
        missing=$(packages_missing "$kind" "$major" "${needs[@]}")
        [ -z "$missing" ] || die "still missing after their installation:" $missing
    fi
    PG_CONFIG=${given_pg_config:-/usr/lib/postgresql/$major/bin/pg_config}
    export PG_CONFIG
}

# ---- the directory of this run ----

# initdb refuses root, so root hands everything to an unprivileged user
as_server_user() (
    case $PWD/ in "$RUN_DIR"/*) ;; *) cd "$RUN_DIR" || exit ;; esac
    export HOME=$RUN_DIR TMPDIR=$RUN_DIR/tmp
    if [ "$(id -u)" = 0 ]; then
        exec setpriv --reuid="$server_user" --regid="$(id -g "$server_user")" --init-groups -- "$@"
    fi
    exec "$@"
)

run_dir_create() {
    local parent

    [ -z "$RUN_DIR" ] || return 0
    server_user=$(id -un)
    if [ "$(id -u)" = 0 ]; then
        server_user=postgres
        id postgres >/dev/null 2>&1 || server_user=nobody
    fi
    trap run_dir_remove EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # a directory that the server's user may enter, and short enough for a socket's path
    for parent in "${TMPDIR:-/tmp}" /tmp; do
        RUN_DIR=$(mktemp -d "$parent/idem.XXXXXX") || die "cannot make a directory in $parent"
        mkdir "$RUN_DIR/tmp"
        chown -R "$server_user" "$RUN_DIR"
        [ ${#RUN_DIR} -le 50 ] && as_server_user true 2>/dev/null && return
        rm -rf "$RUN_DIR"
    done
    die "the user \"$server_user\" cannot use a directory in /tmp"
}

# stops what runs and removes what is there; the exit code of the script stays as it is
run_dir_remove() {
    local pid_file pid

    trap '' HUP INT TERM
    if [ -n "$watched_group" ] && kill -TERM -- "-$watched_group" 2>/dev/null; then
        for _ in {1..100}; do
            kill -0 -- "-$watched_group" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL -- "-$watched_group" 2>/dev/null
    fi
    [ -n "$RUN_DIR" ] || return 0
    for pid_file in $(find "$RUN_DIR" -name postmaster.pid 2>/dev/null); do
        pid=$(head -n 1 "$pid_file" 2>/dev/null)
        [ -n "$pid" ] && kill -QUIT "$pid" 2>/dev/null
        for _ in {1..50}; do
            [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
    done
    cd /
    # a process that is just ending may still write a file
    rm -rf "$RUN_DIR" 2>/dev/null || { sleep 1; rm -rf "$RUN_DIR"; }
    RUN_DIR=
}

# Runs a command in a process group of its own and waits for it.  Bash acts on a signal only
# between foreground commands, but at once while it waits; run_dir_remove then ends the group.
watched() {
    local rc=0

    set -m
    "$@" </dev/null &
    watched_group=$!
    set +m
    wait "$watched_group" || rc=$?
    watched_group=
    return $rc
}

# ---- the extension ----

# the installation that PG_CONFIG belongs to, at the same relative places under $RUN_DIR/root
postgres_copy() {
    local root=$RUN_DIR/root bin dir

    bin=$("$PG_CONFIG" --bindir)
    for dir in "$("$PG_CONFIG" --sharedir)" "$("$PG_CONFIG" --pkglibdir)"; do
        as_server_user mkdir -p "$root$dir"
        as_server_user cp -rsf "$dir/." "$root$dir/" || die "cannot copy $dir"
    done
    as_server_user mkdir -p "$root$bin"
    as_server_user cp -rL "$bin/." "$root$bin/" || die "cannot copy $bin"
    for dir in includedir includedir-server libdir; do
        dir=$("$PG_CONFIG" --$dir)
        [ -e "$root$dir" ] && continue
        as_server_user mkdir -p "$root${dir%/*}"
        as_server_user ln -s "$dir" "$root$dir"
    done
    PG_CONFIG=$root$bin/pg_config
    PATH=$root$bin:$PATH
    export PG_CONFIG PATH
}

# SRC as it stands, but without what was built in it
source_copy() {
    as_server_user mkdir -p "$RUN_DIR/src"
    tar -C "$1" --exclude=./.git --exclude=./tmp_check --exclude=./results \
        --exclude=./output_iso --exclude='*.o' --exclude='*.so' --exclude='*.bc' -cf - . |
        as_server_user tar -C "$RUN_DIR/src" --no-same-owner -xf - || die "cannot copy $1"
}

extension_install() {
    local src=$1

    shift
    run_dir_create
    source_copy "$src"
    postgres_copy
    make_variables=(PG_CONFIG="$PG_CONFIG" with_llvm=no "$@")
    watched as_server_user make -s -C "$RUN_DIR/src" "${make_variables[@]}" all ||
        die "the extension does not build"
    watched as_server_user make -s -C "$RUN_DIR/src" "${make_variables[@]}" install >/dev/null ||
        die "the extension cannot be installed"
}

# ---- the cluster ----

free_port() {
    python3 -c 'import socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    print(s.getsockname()[1])'
}

cluster_start() {
    local locale=C

    run_dir_create
    export PGDATA=$RUN_DIR/data PGHOST=$RUN_DIR/socket PGPORT=5432
    export PGUSER=postgres PGDATABASE=postgres
    [ -x "$("$PG_CONFIG" --bindir)/initdb" ] || die "$PG_CONFIG has no initdb beside it"
    PATH=$("$PG_CONFIG" --bindir):$PATH
    locale -a 2>/dev/null | grep -qix 'c\.utf-\?8' && locale=C.UTF-8
    as_server_user mkdir -p "$PGHOST"
    as_server_user initdb --no-sync -A trust -U postgres --encoding=UTF8 --locale=$locale \
        >"$RUN_DIR/initdb.log" 2>&1 || { cat "$RUN_DIR/initdb.log" >&2; die "initdb failed"; }
    printf '%s\n' "listen_addresses = '$cluster_address'" "unix_socket_directories = '$PGHOST'" \
        "$@" | as_server_user tee -a "$PGDATA/postgresql.conf" >/dev/null
    # a port that was free may be somebody else's a moment later
    for _ in {1..5}; do
        [ -z "$cluster_address" ] || PGPORT=$(free_port)
        echo "port = $PGPORT" | as_server_user tee -a "$PGDATA/postgresql.conf" >/dev/null
        as_server_user pg_ctl -l "$RUN_DIR/server.log" -w -t 60 start >/dev/null 2>&1 && return
        grep -q 'could not bind' "$RUN_DIR/server.log" || break
    done
    cat "$RUN_DIR/server.log" >&2
    die "the server does not start"
}

cluster_stop() {
    as_server_user pg_ctl -m "${1:-fast}" -w stop >/dev/null
    as_server_user rm -rf "$PGDATA"
}
