#!/bin/sh
# Install Python, with which the rest of `make setup` runs, if this Debian has none.
# Usage: workshop/setup/python.sh /usr/bin/python3
set -eu
[ ! -x "$1" ] || exit 0
ID="" VERSION_ID=""
# shellcheck disable=SC1091
[ ! -r /etc/os-release ] || . /etc/os-release
case "$ID $VERSION_ID" in
"debian 12" | "debian 13") ;;
*)
    echo "This is not Debian 12 or 13. Use one of them, for example in a container or a virtual machine." >&2
    exit 1
    ;;
esac
as_root=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
        echo "Python is not installed, and there is no sudo to install it. Run as root: apt-get install python3-venv" >&2
        exit 1
    }
    as_root=sudo
fi
echo "Installing Python first: about 10 MB to fetch, 35 MB on disk, and the list of Debian packages if it is old."
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q -o Dpkg::Use-Pty=0 \
        -o APT::Keep-Downloaded-Packages=false --no-install-recommends python3-venv
}
mkdir -p run
log=run/setup-first.log
{ install || { $as_root apt-get -q update && install; }; } >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    echo "Python could not be installed. Check the network and the sources in /etc/apt, then run the same command again." >&2
    exit 1
}
