#!/bin/bash
# From a blank Debian 12 or 13 or Ubuntu 24.04 to snapapp behind TLS, and from one release to the next. As root, from an
# unpacked release or a clone:
#
#     ops/linode/install.sh DOMAIN     install, or bring to this release
#     ops/linode/install.sh            the same, with the domain of last time
#
# Typed again it changes nothing. A release that does not come up is taken back by itself, with its schema. Where systemd
# is not running (a chroot, an image being built) everything is put in place and nothing is started, which is said.
set -euo pipefail
umask 022
export LC_ALL=C.UTF-8 # one that is not installed, of whoever logged in, would keep the cluster from being made

SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
HOME_OF_RELEASES=/opt/snapapp
SETTINGS=/etc/snapapp/snapapp.env
COPIES=/var/lib/postgresql/before-upgrade
UNITS=/etc/systemd/system
UNFINISHED=$HOME_OF_RELEASES/unfinished # of a change that is under way: the release before it, and the units that ran
HEALTHY_WITHIN=${HEALTHY_WITHIN:-60} # seconds
CHANGES=0
RELEASE='' PREVIOUS='' COPY='' RUNNING=() HAS_NEWS=0 # written by the steps below

PACKAGES=(postgresql python3 python3-venv make sudo curl ca-certificates openssl caddy nftables unattended-upgrades age)
SERVICES=(snapapp-api.service snapapp-worker@.service snapapp-supervisor.service snapapp-migrate.service
    snapapp-backup.service snapapp-backup.timer snapapp-drill.service snapapp-drill.timer snapapp.slice)

main() {
    local domain=${1:-}
    [[ $EUID -eq 0 ]] || fail "This needs root."
    [[ -n $domain || ! -r /etc/snapapp/domain ]] || domain=$(</etc/snapapp/domain)
    domain=${domain,,}
    [[ $domain =~ ^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$ ]] || fail "Usage: install.sh DOMAIN (the name by which the box is reached)"
    require_system
    is_running || say "systemd is not running here: everything is put in place, and nothing is started."
    exec 9>/run/snapapp-install.lock
    flock -n 9 || fail "Another installation is running."

    packages
    users
    box
    postgresql
    build_release
    settings "$domain"
    deploy
    proxy "$domain"
    tidy
    ((CHANGES)) || say "Nothing was to do: all of it is as it should be."
    say "snapapp is release $(basename "$(readlink -f "$HOME_OF_RELEASES/current")"), for https://$domain/"
}

# --- words --------------------------------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }
changed() {
    CHANGES=$((CHANGES + 1))
    say "  $*"
}
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

is_running() { [[ -d /run/systemd/system ]]; }
systemd() { if is_running; then systemctl "$@"; fi; }
as() { # a command, as another user, from a folder that it may enter
    local user=$1
    shift
    (cd / && sudo -u "$user" "$@")
}
ask() { as postgres psql --quiet --tuples-only --no-align -v ON_ERROR_STOP=1 -c "$1" "${2:-postgres}"; }

# A file as it should be, whole or not at all; true where that changed something.
place() {
    local from=$1 to=$2 mode=${3:-0644}
    if cmp -s "$from" "$to" && [[ $(stat -c %a "$to") == "${mode#0}" ]]; then return 1; fi
    write "$from" "$to" -m "$mode"
    changed "$to"
}

write() { # with what `install` is told besides
    local from=$1 to=$2
    shift 2
    install -D "$@" "$from" "$to.part" && mv -T "$to.part" "$to" && return
    rm -f "$to.part"
    fail "$to cannot be written; what was done until here stays, and this may be typed again."
}

# Whether a file may be replaced: it is not there, it is ours, or it is as its package brought it.
is_ours() {
    local path=$1
    [[ -e $path ]] || return 0
    grep -q snapapp "$path" && return 0
    # not through a pipe: grep leaves at the first hit, and dpkg-query's complaint of that would be the answer
    grep -qF " $path $(md5sum <"$path" | cut -d' ' -f1)" < <(dpkg-query -W -f='${Conffiles}\n')
}

# --- the box ------------------------------------------------------------------------------------------------------

require_system() {
    # shellcheck source=/dev/null
    . /etc/os-release
    case "$ID $VERSION_ID" in
        'debian 12' | 'debian 13' | 'ubuntu 24.04') ;;
        *) fail "This is $ID $VERSION_ID; it works on Debian 12 and 13 and on Ubuntu 24.04." ;;
    esac
}

packages() {
    local missing=() name
    for name in "${PACKAGES[@]}"; do
        [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
    done
    ((${#missing[@]})) || return 0
    changed "packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # what was interrupted the last time; a new machine's own first updates are waited for: only `install` has an option
    # for that. Without our lock: a server that is started by its package would keep it.
    wait_for 300 dpkg --configure -a >/dev/null 9>&- || fail "Packages are left half installed, see above."
    wait_for 300 apt-get update -qq 9>&- || fail "The lists of packages cannot be fetched, see above."
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" \
        >/dev/null 9>&- || fail "The packages cannot be installed, see above; this may be typed again."
}

users() {
    getent passwd snapapp >/dev/null && return
    changed "user snapapp"
    adduser --quiet --system --group --home /var/lib/snapapp --no-create-home --shell /usr/sbin/nologin snapapp
}

# Firewall, updates, swap, the journal's size.
box() {
    local scratch
    scratch=$(mktemp)
    sed "s/^define ssh = .*/define ssh = { $(ssh_ports) }/" "$SOURCE/ops/linode/nftables.conf" >"$scratch"
    if ufw_is_active; then
        say "ufw is active and stays: it must let in 80/tcp, 443/tcp and 443/udp."
    elif ! is_ours /etc/nftables.conf; then
        say "/etc/nftables.conf is yours and stays: it must let in 80/tcp, 443/tcp and 443/udp."
    elif place "$scratch" /etc/nftables.conf; then
        systemd enable --quiet nftables
        systemd restart nftables
    fi
    rm "$scratch"
    place "$SOURCE/ops/linode/20auto-upgrades" /etc/apt/apt.conf.d/20auto-upgrades || true
    if place "$SOURCE/ops/linode/journald.conf" /etc/systemd/journald.conf.d/snapapp.conf; then
        systemd restart systemd-journald
    fi
    swap
}

# Those that sshd has, so that whoever installs is not locked out.
ssh_ports() {
    local found
    found=$({ sshd -T 2>/dev/null || true; } | awk '$1 == "port" { printf "%s%s", sep, $2; sep = ", " }')
    printf '%s' "${found:-22}"
}

ufw_is_active() { command -v ufw >/dev/null && grep -q '^Status: active' < <(ufw status 2>/dev/null); }

# Under 4 GB one page too many would otherwise be somebody's end.
swap() {
    is_running && (($(memory_mb) < 4000)) || return 0
    [[ $(swapon --noheadings --show | wc -l) -eq 0 ]] || return 0
    if systemd-detect-virt --quiet --container; then return; fi
    if ! { { [[ -e /swapfile ]] || make_swap; } && swapon /swapfile; }; then
        say "There can be no swap in /swapfile, see above; the rest goes on without."
        return
    fi
    changed "swap: /swapfile, 1 GB"
    grep -q '^/swapfile ' /etc/fstab || echo '/swapfile none swap sw 0 0' >>/etc/fstab
}

make_swap() {
    rm -f /swapfile.part
    fallocate -l 1G /swapfile.part && chmod 600 /swapfile.part && mkswap -q /swapfile.part >/dev/null &&
        mv -T /swapfile.part /swapfile && return
    rm -f /swapfile.part
    return 1
}

memory_mb() { awk '/^MemTotal:/ { print int($2 / 1024) }' "${MEMINFO:-/proc/meminfo}"; }

# --- PostgreSQL ---------------------------------------------------------------------------------------------------

postgresql() {
    local cluster folder scratch restart=0
    cluster=$(cluster_in_use)
    [[ -n $cluster ]] || fail "No PostgreSQL cluster has port 5432 (pg_lsclusters): type pg_createcluster, then this again."
    folder=/etc/postgresql/$cluster
    place "$SOURCE/ops/linode/postgresql.conf.d/snapapp.conf" "$folder/conf.d/snapapp.conf" && restart=1
    scratch=$(mktemp)
    memory_conf "$(memory_mb)" >"$scratch"
    place "$scratch" "$folder/conf.d/snapapp-memory.conf" && restart=1
    slice_conf "$(memory_mb)" >"$scratch"
    place "$scratch" "$UNITS/snapapp.slice.d/memory.conf" && systemd daemon-reload
    rm "$scratch"
    ((!restart)) || restart_postgresql "$cluster"
    wait_for 30 as postgres pg_isready --quiet || restart_postgresql "$cluster"
    wait_for 30 as postgres pg_isready --quiet || fail "PostgreSQL does not answer."
    roles
}

# As VERSION/NAME. Beside it there may be others: those of another version, before or after an upgrade, have other ports.
cluster_in_use() { pg_lsclusters --no-header | awk '$3 == 5432 && !found++ { print $1 "/" $2 }'; }

restart_postgresql() {
    if is_running; then
        systemctl restart "postgresql@${1/\//-}"
    else
        pg_ctlcluster "${1%/*}" "${1#*/}" restart 9>&- # the server would keep the lock
    fi
}

# snapapp.conf is for 2 GB. What grows with the memory, from there on: a quarter of it for PostgreSQL.
memory_conf() {
    local mb=$1 of_2_gb connections
    of_2_gb=$((mb < 1900 ? 1900 : mb > 65536 ? 65536 : mb))
    connections=$((of_2_gb < 3900 ? 50 : of_2_gb < 7800 ? 100 : 200))
    cat <<END
# Made by install.sh for $mb MB of memory; over what is in snapapp.conf.
shared_buffers = $((of_2_gb / 16))MB
effective_cache_size = $((of_2_gb / 4))MB
maintenance_work_mem = $((of_2_gb / 32))MB
autovacuum_work_mem = $((of_2_gb / 100))MB
max_connections = $connections
END
}

# What is left beside a quarter for PostgreSQL and 300 MB for the system.
slice_conf() {
    local mb=$1
    printf '# Made by install.sh for %s MB of memory.\n[Slice]\n' "$mb"
    ((mb < 3900)) || printf 'MemoryHigh=%sM\nMemoryMax=%sM\n' $((mb * 3 / 4 - 400)) $((mb * 3 / 4 - 300))
}

# The owner of the tables is who the service is; PostgreSQL knows it by the system's user, so there is no password. Into
# the tenants' role it steps to be held to one tenant, into the backup's to see them all. The reader is for people.
roles() {
    role snapapp 'LOGIN'
    role snapapp_tenant 'NOLOGIN'
    role snapapp_backup 'NOLOGIN BYPASSRLS'
    role snapapp_reader 'LOGIN BYPASSRLS CONNECTION LIMIT 5'
    member snapapp_tenant snapapp
    member snapapp_backup snapapp
    member pg_read_all_data snapapp_backup
    member pg_read_all_data snapapp_reader
    if [[ -z $(ask "SELECT FROM pg_db_role_setting JOIN pg_roles ON pg_roles.oid = setrole WHERE rolname = 'snapapp_reader'") ]]; then
        ask 'ALTER ROLE snapapp_reader SET default_transaction_read_only = on'
    fi
    if [[ $(ask "SELECT count(*) FROM pg_database WHERE datname = 'snapapp'") == 0 ]]; then
        changed "database snapapp"
        as postgres createdb --owner snapapp --encoding UTF8 --locale C.UTF-8 --template template0 snapapp
    fi
}

role() {
    [[ $(ask "SELECT count(*) FROM pg_roles WHERE rolname = '$1'") == 0 ]] || return 0
    changed "role $1"
    ask "CREATE ROLE $1 $2"
}

member() {
    local is_it
    is_it=$(ask "SELECT count(*) FROM pg_auth_members WHERE roleid = '$1'::regrole AND member = '$2'::regrole")
    [[ $is_it == 0 ]] || return 0
    ask "GRANT $1 TO $2"
}

# --- the release --------------------------------------------------------------------------------------------------

# A folder by its content, root's, built beside the others and shown when it is whole. What fails here changes nothing.
build_release() {
    RELEASE="$HOME_OF_RELEASES/releases/$(content_hash)"
    [[ ! -d $RELEASE ]] || return 0
    changed "release $(basename "$RELEASE")"
    rm -rf "$HOME_OF_RELEASES"/releases/*.part # of whoever was interrupted
    mkdir -p "$RELEASE.part"
    (cd "$SOURCE" && files_of_release | tar --null -cf - -T -) | tar -xf - --no-same-owner -C "$RELEASE.part"
    if ! make -C "$RELEASE.part" .venv/.ready >"$RELEASE.log" 2>&1; then
        tail -20 "$RELEASE.log" >&2
        rm -rf "$RELEASE.part" "$RELEASE.log"
        fail "The release cannot be built; what runs goes on."
    fi
    "$RELEASE.part/.venv/bin/python" -m compileall -q "$RELEASE.part/snapapp" "$RELEASE.part/migrations"
    chmod -R go=u-w "$RELEASE.part"
    rm "$RELEASE.log"
    mv -T "$RELEASE.part" "$RELEASE"
}

# What runs, and nothing that running leaves behind.
files_of_release() {
    find snapapp migrations ops docs Makefile pyproject.toml requirements*.lock README.md CHANGELOG.md LICENSE \
        -type f ! -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z
}

content_hash() { (cd "$SOURCE" && files_of_release | xargs -0 sha256sum | sha256sum | cut -c1-16); }

settings() {
    local domain=$1
    install -d -m 0755 /etc/snapapp
    install -d -m 0700 -o snapapp -g snapapp /var/backups/snapapp
    install -d -m 0700 -o snapapp -g snapapp /var/lib/snapapp
    if [[ ! -e $SETTINGS ]]; then
        changed "$SETTINGS"
        write "$SOURCE/ops/linode/snapapp.env.example" "$SETTINGS" -m 0640 -o root -g snapapp
    fi
    fill SNAPAPP_INTERNAL_TOKEN "$(openssl rand -hex 24)"
    fill SNAPAPP_SIGNING_SECRET "$(openssl rand -hex 32)"
    fill SNAPAPP_PUBLIC_BASE_URL "https://$domain"
    follow_domain "$domain"
    as snapapp "$RELEASE/.venv/bin/snapapp" config >/dev/null || fail "The settings in $SETTINGS are wrong; what runs goes on."
}

# Links go where the box is reached; where a person has written another address, it stays.
follow_domain() {
    local domain=$1 before=''
    [[ ! -r /etc/snapapp/domain ]] || before=$(</etc/snapapp/domain)
    [[ $before != "$domain" ]] || return 0
    changed "domain $domain"
    if [[ -n $before ]] && grep -qxF "SNAPAPP_PUBLIC_BASE_URL=https://$before" "$SETTINGS"; then
        sed -i "s|^\(SNAPAPP_PUBLIC_BASE_URL=https://\).*|\1$domain|" "$SETTINGS"
        HAS_NEWS=1
    fi
    printf '%s\n' "$domain" >/etc/snapapp/domain
}

# A gap in the settings, and only a gap. From a here-string: arguments could be read by every user.
fill() { ! grep -q "^$1=\$" "$SETTINGS" || sed -i -f - "$SETTINGS" <<<"s|^$1=\$|$1=$2|"; }

# --- the change ---------------------------------------------------------------------------------------------------

deploy() {
    ln -sfn "$HOME_OF_RELEASES/current/.venv/bin/snapapp" /usr/local/bin/snapapp
    if [[ $(readlink -f "$HOME_OF_RELEASES/current" || true) == "$RELEASE" ]] && is_current; then
        units
        first_token
        enable
        if [[ -s $UNFINISHED ]]; then finish; else start_with_news; fi
        return
    fi
    if [[ -e $HOME_OF_RELEASES/current ]] && has_schema; then
        upgrade
    else
        first_start
    fi
}

is_current() { as snapapp "$RELEASE/.venv/bin/snapapp" migrate --check >/dev/null; }

has_schema() { [[ $(ask "SELECT count(*) FROM pg_tables WHERE tablename = 'tenant'" snapapp) != 0 ]]; }

first_start() {
    switch_to "$RELEASE"
    units
    migrate
    first_token
    if ! { enable && is_healthy; }; then fail "It does not come up: journalctl -u snapapp-api -n 50"; fi
}

# In place of the one that everybody knows. A database that was restored has its own.
first_token() {
    [[ $(ask "SELECT count(*) FROM tenant WHERE code = 'default' AND token_hash = sha256('dev-default-token')" snapapp) != 0 ]] ||
        return 0
    as snapapp "$RELEASE/.venv/bin/snapapp" tenants rotate-token default
    say "  Note it: clients send it as X-Assinatura-Token, a person types it on the page."
}

# What runs is told of settings that have changed, and what has failed is tried again: what was the matter may be mended.
start_with_news() {
    is_running || return 0
    if ! systemctl is-failed --quiet snapapp-api; then
        ((HAS_NEWS)) && systemctl is-active --quiet snapapp-api || return 0
    fi
    changed "snapapp-api is started again"
    systemctl reset-failed 'snapapp-*' || true
    if ! { restart_all && is_healthy; }; then fail "It does not come up: journalctl -u snapapp-api -n 50"; fi
}

# An upgrade was interrupted, as by a terminal that was lost, when all but the start was done.
finish() {
    note_what_runs
    changed "what an interrupted upgrade left is started again"
    systemd reset-failed 'snapapp-*' || true
    if ! { restart_all && start_again && is_healthy; }; then fail "It does not come up: journalctl -u snapapp-api -n 50"; fi
    rm -f "$UNFINISHED"
}

upgrade() {
    local code=0 is_up=1
    as snapapp "$RELEASE/.venv/bin/snapapp" check-deploy || code=$?
    ((code != 1)) || fail "The new release would leave jobs or schedules alone, see above; what runs goes on."
    note_what_runs
    if is_current; then
        switch_to "$RELEASE"
        units
        restart_all || is_up=0
    else
        migrate_with_a_copy
        start_again || is_up=0
    fi
    if ! { ((is_up)) && enable && is_healthy; }; then take_back; fi
    rm -f "$UNFINISHED"
}

# What ran, and which release it was, counts from before an upgrade that was interrupted.
note_what_runs() {
    local noted=()
    PREVIOUS=$(readlink -f "$HOME_OF_RELEASES/current")
    [[ ! -s $UNFINISHED ]] || mapfile -t noted <"$UNFINISHED"
    [[ ! -d ${noted[0]:-} ]] || PREVIOUS=${noted[0]}
    mapfile -t RUNNING < <({ running_units && printf '%s\n' "${noted[@]:1}"; } | grep . | sort -u)
    printf '%s\n' "$PREVIOUS" "${RUNNING[@]}" >"$UNFINISHED.part"
    mv -T "$UNFINISHED.part" "$UNFINISHED"
}

# The schema changes, so everything stands still, and there is a copy to go back to.
migrate_with_a_copy() {
    ((!${#RUNNING[@]})) || systemd stop "${RUNNING[@]}"
    if ! keep_copy; then
        ! start_again || rm -f "$UNFINISHED"
        fail "The database cannot be copied, so the schema is left as it is; what ran is started again."
    fi
    switch_to "$RELEASE"
    units
    if ! migrate; then
        COPY='' # it is one transaction, so the schema is as it was
        take_back
    fi
}

start_again() { ((!${#RUNNING[@]})) || systemd start "${RUNNING[@]}"; }

running_units() {
    systemd list-units --plain --no-legend --state=active 'snapapp-api.service' 'snapapp-worker@*' 'snapapp-supervisor.service' |
        awk '{ print $1 }'
}

migrate() { as snapapp "$HOME_OF_RELEASES/current/.venv/bin/snapapp" migrate; }

# In one step: whoever looks finds the one or the other.
switch_to() {
    changed "current is $(basename "$1")"
    ln -sfn "$1" "$HOME_OF_RELEASES/next"
    mv -T "$HOME_OF_RELEASES/next" "$HOME_OF_RELEASES/current"
}

# The API says itself when it serves: one that does not is an error here already.
restart_all() {
    systemd restart snapapp-api &&
        systemd try-restart 'snapapp-worker@*' &&
        systemd try-reload-or-restart snapapp-supervisor
}

units() {
    local name is_new=0 from=$HOME_OF_RELEASES/current/ops/linode
    for name in "${SERVICES[@]}" snapapp-.service.d/sandbox.conf; do
        if [[ -e $from/$name ]] && place "$from/$name" "$UNITS/$name"; then is_new=1; fi
    done
    ((!is_new)) || systemd daemon-reload
}

enable() {
    local name
    is_running || return 0
    for name in snapapp-backup.timer snapapp-drill.timer; do
        systemctl is-enabled --quiet "$name" || systemctl enable --quiet --now "$name"
    done
    # whoever has split the worker off, or stopped all of it, did so on purpose
    if ! systemctl is-enabled --quiet snapapp-api; then
        changed "snapapp-api is enabled"
        systemctl enable --quiet --now snapapp-api
    fi
}

# Every part of it, within a minute. A unit that systemd has given up on is not waited for.
is_healthy() {
    local place
    is_running || return 0
    place=$(address)
    wait_for "$HEALTHY_WITHIN" is_answered_or_over "http://$place/actuator/health" &&
        ! systemctl is-failed --quiet snapapp-api
}

# Where it listens, as it reads the settings itself: a value may be in quotes, and the last of two counts.
address() {
    as snapapp "$HOME_OF_RELEASES/current/.venv/bin/snapapp" config | awk '
        $1 == "SNAPAPP_HOST" { host = $2 ~ /:/ ? "[" $2 "]" : $2 }
        $1 == "SNAPAPP_PORT" { port = $2 }
        END { print host ":" port }'
}

is_answered_or_over() { curl -fsS -o /dev/null --max-time 3 "$1" 2>/dev/null || systemctl is-failed --quiet snapapp-api; }

wait_for() { # so many seconds, for a command to succeed
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < until)) || return 1
        sleep 1
    done
}

# --- the way back -------------------------------------------------------------------------------------------------

take_back() {
    say "Release $(basename "$RELEASE") does not come up, so it is taken back. What it said:"
    if is_running; then journalctl -u snapapp-api -n 20 --no-pager || true; fi
    [[ -z $COPY ]] || systemd stop snapapp-api 'snapapp-worker@*' snapapp-supervisor
    [[ -z $COPY ]] || bring_copy_back || fail "The copy $COPY cannot be restored, and nothing else was changed: docs/operate/runbook.md"
    switch_to "$PREVIOUS"
    units
    systemd reset-failed 'snapapp-*' || true
    if ! { restart_all && start_again && is_healthy; }; then
        fail "Release $(basename "$PREVIOUS") does not come up either: journalctl -u snapapp-api -n 50"
    fi
    rm -f "$UNFINISHED"
    fail "Release $(basename "$RELEASE") was taken back; $(basename "$PREVIOUS") runs as before."
}

# Whole or not at all: the name is given when the dump has ended well.
keep_copy() {
    install -d -m 0700 -o postgres -g postgres "$COPIES" || return
    COPY=$COPIES/$(basename "$(readlink -f "$HOME_OF_RELEASES/current")").dump
    as postgres pg_dump --format custom --file "$COPY.part" snapapp &&
        as postgres mv "$COPY.part" "$COPY"
}

# Beside the database in use, which keeps everything that came since, under a name of its own.
bring_copy_back() {
    local newer
    newer=snapapp_$(date +%Y%m%d_%H%M%S)
    as postgres pg_restore --list "$COPY" >/dev/null &&
        as postgres dropdb --if-exists snapapp_restored &&
        as postgres createdb --owner snapapp --encoding UTF8 --locale C.UTF-8 --template template0 snapapp_restored &&
        as postgres pg_restore --exit-on-error --dbname snapapp_restored "$COPY" &&
        as postgres psql --quiet --single-transaction -v ON_ERROR_STOP=1 \
            -c "ALTER DATABASE snapapp RENAME TO $newer" -c 'ALTER DATABASE snapapp_restored RENAME TO snapapp' &&
        say "The newer database is kept as $newer."
}

# --- the proxy, and what is left over -----------------------------------------------------------------------------

proxy() {
    local domain=$1 scratch
    is_ours /etc/caddy/Caddyfile || {
        say "/etc/caddy/Caddyfile is yours and stays; compare it with ops/linode/Caddyfile."
        return 0
    }
    scratch=$(mktemp)
    sed "s/snapapp\.example\.com/$domain/" "$RELEASE/ops/linode/Caddyfile" >"$scratch"
    caddy validate --adapter caddyfile --config "$scratch" >/dev/null 2>&1 || fail "Caddy does not take its file: $scratch"
    if place "$scratch" /etc/caddy/Caddyfile; then
        # whoever has another proxy has disabled it
        ! systemd is-enabled --quiet caddy || systemd reload-or-restart caddy
    fi
    rm "$scratch"
}

# The releases and copies that nobody goes back to: all but the one that runs and the three newest.
tidy() {
    local path current old
    current=$(readlink -f "$HOME_OF_RELEASES/current")
    mapfile -t old < <(find "$HOME_OF_RELEASES/releases" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' |
        sort -rn | tail -n +4 | cut -d' ' -f2-)
    for path in "${old[@]}"; do
        [[ $path != "$current" && $path != "$PREVIOUS" ]] || continue
        changed "release $(basename "$path") is gone"
        rm -rf "$path" "$COPIES/$(basename "$path").dump"
    done
}

# Sourced, it is only its functions.
[[ ${BASH_SOURCE[0]} != "$0" ]] || main "$@"
