#!/bin/sh
# Runs the fast tests in a clean root of another Debian release, with the Python of that release.
# Usage: rig/other_debian.sh SUITE     Example: rig/other_debian.sh trixie
# Needs root and mmdebstrap. The packages come from the mirror that this host's apt is configured for.
set -eu
cd "$(dirname "$0")/.."
suite=${1:?"which release? Example: rig/other_debian.sh trixie"}
root=run/roots/$suite
command -v mmdebstrap >/dev/null || {
    echo "mmdebstrap is not installed. Run: apt-get install mmdebstrap" >&2
    exit 1
}
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v -e security -e '^file:' | head -n 1)
case $suite in bookworm) archive=libarchive13 ;; *) archive=libarchive13t64 ;; esac
if [ ! -d "$root" ]; then
    mkdir -p run/roots
    echo "Creating a clean root of $suite in $root"
    mmdebstrap --quiet --variant=apt --components=main \
        --include="python3,python3-venv,libmagic1,$archive,libseccomp2,ca-certificates,git" \
        "$suite" "$root.new" "$mirror"
    mv "$root.new" "$root"
fi
# The root reaches the package index the way this host does.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
rm -rf "$root/opt/mailwarden"
git clone --quiet . "$root/opt/mailwarden"
unshare --mount sh -eu -c 'mount --rbind /proc "$0/proc" && exec chroot "$0" sh -eu -c "$1"' "$root" '
    cd /opt/mailwarden
    python3 -m venv .venv
    .venv/bin/pip install --quiet --require-hashes --no-deps -r requirements/develop.txt
    .venv/bin/pip install --quiet --no-deps --no-build-isolation --editable .
    .venv/bin/mailwarden compile >/dev/null
    .venv/bin/python --version
    .venv/bin/pytest -q -n 2 -p no:schemathesis tests/unit tests/analyzers tests/configuration tests/conventions -m "not slow"
'
