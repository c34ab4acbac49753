# downloads.sh: what a story needs from where its language's packages come from.
#
# Sourced by bash scripts after cluster.sh, never run.
#
#   downloads_fetch NAME    runs test/e2e/NAME/fetch, if there is one, and leaves what it got in
#                           $RUN_DIR/downloads/NAME, which the server's user may read
#
# fetch is run in an empty directory, as whoever runs the script, and fills that directory by an
# ordinary client, with all versions pinned by files beside it.  What it got is kept in
# ${XDG_CACHE_HOME:-~/.cache}/idem_action under a name that changes when any file in
# test/e2e/NAME changes, so a later run need not fetch again, and needs nothing of a former one.

downloads_fetch() {
    local name=$1 source=$PWD/test/e2e/$1 cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/idem_action
    local sum kept new rc=0

    [ -x "$source/fetch" ] || return 0
    sum=$(cd "$source" && find . -type f ! -path '*/__pycache__/*' -exec sha256sum {} + |
        LC_ALL=C sort | sha256sum | cut -c 1-16)
    kept=$cache/$name-$sum
    mkdir -p "$cache" || return
    if [ ! -d "$kept" ]; then
        echo "fetching what $name needs"
        new=$(mktemp -d "$cache/new.XXXXXX") || return
        watched env -C "$new" "$source/fetch" >"$RUN_DIR/fetch.log" 2>&1 || rc=$?
        if [ $rc != 0 ]; then
            tail -n 60 "$RUN_DIR/fetch.log"
            rm -rf "$new"
            return $rc
        fi
        # another run may have been faster
        mv -T "$new" "$kept" 2>/dev/null || rm -rf "$new"
    fi
    # what no run has used for a month is of an older version
    touch "$kept"
    find "$cache" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
    mkdir -p "$RUN_DIR/downloads"
    cp -r "$kept" "$RUN_DIR/downloads/$name" || return
    chown -R "$server_user" "$RUN_DIR/downloads"
    chmod -R u+rwX,go+rX "$RUN_DIR/downloads"
}
