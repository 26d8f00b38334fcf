#!/bin/bash
# The four scripts that dpkg calls for the package: it says which one, and why. `scripts/build-deb` puts releases.sh in here.
#
# dpkg replaces what it has installed file by file, while the service runs. So the service runs from another folder: each
# configuration makes a release of links to these files, which are the same files until dpkg puts new ones there.
set -eu
prefix=/opt/proxyfleet
units=(proxyfleet.service proxyfleet.socket proxyfleet-backup.timer)

fail() {
    echo "proxyfleet: $1" >&2
    exit 1
}

# releases.sh

reload_units() {
    if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
}

make_release() {
    local release
    release=$(new_release)
    mkdir -p "$prefix/releases"
    cp --archive --link "$prefix/package" "$release"
    sed -i "1s|.*|#!$release/bin/python3|" "$release/bin/proxyfleet"
    echo "$release"
}

# The service's own unit is another one than in the release $1.
unit_changed() {
    local unit=share/proxyfleet/systemd/proxyfleet.service
    cmp --silent "$1/$unit" "$prefix/current/$unit" || echo yes
}

configure() {
    local before release
    make_account /usr/lib
    protect_configuration
    before=$(readlink "$prefix/current" || true)
    release=$(make_release)
    switch_to "$release"
    reload_units
    if [ -z "$before" ]; then
        systemctl enable --quiet proxyfleet.service
        if [ -d /run/systemd/system ]; then systemctl start proxyfleet.service; fi
        name_password
    elif systemctl is-active --quiet proxyfleet.service; then
        hand_over "$before" "$(unit_changed "$before")"
    fi
    prune
}

case $DPKG_MAINTSCRIPT_NAME:$1 in
preinst:install | preinst:upgrade)
    [ ! -e /etc/systemd/system/proxyfleet.service ] ||
        fail "scripts/install-systemd has installed it; scripts/install-systemd --uninstall first: data and configuration stay"
    ;;
postinst:configure) configure ;;
prerm:remove)
    systemctl disable --quiet "${units[@]}"
    if [ -d /run/systemd/system ]; then systemctl stop "${units[@]}"; fi
    ;;
postrm:remove)
    remove_releases
    reload_units
    ;;
postrm:purge)
    purge
    reload_units
    ;;
esac
