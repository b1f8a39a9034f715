#!/bin/sh
# Create a clean root of a Debian release, from the mirror that this host's apt is configured for.
# Usage: packaging/clean-root.sh SUITE FOLDER [PACKAGE...]
# A root without packages is kept as run/packages/SUITE.tar.gz for a day; it is the same for every test. ROOTS names
# another folder than run/packages.
set -eu
cd "$(dirname "$0")/.."
suite=$1 folder=$2
shift 2
command -v mmdebstrap >/dev/null || {
    echo "mmdebstrap is not installed. Run: apt-get install mmdebstrap" >&2
    exit 1
}
mirror=$(packaging/mirror.sh)
base=${ROOTS:-run/packages}/$suite.tar.gz
mkdir -p "$(dirname "$base")"
if [ -z "$(find "$base" -mtime -1 2>/dev/null)" ]; then
    mmdebstrap --quiet --variant=minbase --components=main "$suite" "${base%.tar.gz}.new.tar.gz" "$mirror"
    mv "${base%.tar.gz}.new.tar.gz" "$base"
fi
rm -rf "$folder"
mkdir -p "$folder"
tar --extract --numeric-owner --file="$base" --directory="$folder"
# The root reaches the mirror the way this host does; no service starts while packages are installed.
cp -L /etc/resolv.conf /etc/hosts "$folder/etc/"
printf '#!/bin/sh\nexit 101\n' >"$folder/usr/sbin/policy-rc.d"
chmod 755 "$folder/usr/sbin/policy-rc.d"
[ $# = 0 ] || unshare --mount sh -eu -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$folder" sh -eu -c '
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>/var/log/install.log || { cat /var/log/install.log; exit 1; }
    rm /var/log/install.log
    apt-get clean' sh "$@"
