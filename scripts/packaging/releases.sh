# Releases of the program on one machine: scripts/install-systemd sources it, and the Debian package has it in its postinst.
#
# Each version has a folder below $prefix/releases, and $prefix/current names the one that starts next. So a version is
# there as a whole or not at all, what runs still reads its own files, and the one before is there to go back to.
# The caller has $prefix and `fail`, which prints its argument and ends with 1.

kept_releases=3

new_release() {
    echo "$prefix/releases/$(date -u +%Y%m%dT%H%M%SZ)"
}

# In place of its account, whose data and configuration they are.
make_account() {
    systemd-sysusers "$1/sysusers.d/proxyfleet.conf"
    systemd-tmpfiles --create "$1/tmpfiles.d/proxyfleet.conf"
}

# For root and the service, which reads it.
protect_configuration() {
    chown root:proxyfleet /etc/proxyfleet/config.toml
    chmod 640 /etc/proxyfleet/config.toml
}

# Atomically: at no time is there no current version.
switch_to() {
    ln -sfn "$1" "$prefix/.next"
    mv -T "$prefix/.next" "$prefix/current"
}

# The service that runs becomes the current version, and refuses and drops no connection; from the release $1. With $2 its
# unit is another one than before, which needs a restart; that refuses no connection either.
hand_over() {
    if [ -n "$2" ]; then
        "$prefix/current/bin/proxyfleet" serve --check --config /etc/proxyfleet/config.toml >/dev/null || go_back "$1"
        systemctl restart proxyfleet.service
    else
        "$prefix/current/bin/proxyfleet" upgrade --run-dir /run/proxyfleet || go_back "$1"
    fi
}

go_back() {
    if [ -n "$1" ]; then switch_to "$1"; fi
    fail "the new version does not start; see above. The one before goes on"
}

name_password() {
    local file=/var/lib/proxyfleet/initial-admin-password
    if [ -e "$file" ]; then echo "The password of \`admin\` is in $file"; fi
}

# The newest few stay; what the service may still run from is among them.
prune() {
    local each current
    current=$(readlink -f "$prefix/current")
    find "$prefix/releases" -mindepth 1 -maxdepth 1 -type d 2>/dev/null | sort -r | tail -n "+$((kept_releases + 1))" |
        while read -r each; do
            if [ "$each" != "$current" ]; then rm -rf "$each"; fi
        done
}

remove_releases() {
    rm -rf "$prefix/releases" "$prefix/current"
    rmdir --ignore-fail-on-non-empty "$prefix" 2>/dev/null || true
}

# Configuration, data, backups and the account.
purge() {
    rm -rf /etc/systemd/system/proxyfleet*.d /etc/proxyfleet /var/lib/proxyfleet /var/backups/proxyfleet
    rm -f /var/lib/systemd/timers/stamp-proxyfleet-backup.timer
    if getent passwd proxyfleet >/dev/null; then userdel proxyfleet; fi
    if getent group proxyfleet >/dev/null; then groupdel proxyfleet; fi
}
