#!/bin/sh
# Keeps packages from enabling and starting their services. While `make setup` installs packages, their scripts find
# this program under the names of Debian's own (workshop/setup/packages.py), so nothing in /etc has to change.
# It acts for packages in MAILWARDEN_NEW, which were not on this host before; all others reach Debian's program.
name=${0##*/}
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
case " ${MAILWARDEN_NEW:-} " in
*" ${DPKG_MAINTSCRIPT_PACKAGE:-} "*) ;;
*) exec "$name" "$@" ;;
esac
case "$name: $* " in
deb-systemd-helper:*" enable "*)
    # Recorded as disabled by the administrator: a later version of the package leaves it disabled.
    for word in "$@"; do
        shift
        [ "$word" != enable ] || word=update-state
        set -- "$@" "$word"
    done
    exec "$name" "$@"
    ;;
"update-rc.d: "*" defaults "*) exec "$name" "$1" defaults-disabled ;;
"deb-systemd-helper: "* | "update-rc.d: "* | "systemctl: "*daemon-reload*) exec "$name" "$@" ;;
*) exit 0 ;;
esac
