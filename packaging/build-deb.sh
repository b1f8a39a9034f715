#!/bin/sh
# Build the Debian package of this checkout in a clean root of a Debian release, into dist/SUITE.
# Usage: packaging/build-deb.sh SUITE     Example: packaging/build-deb.sh trixie
# Needs root and mmdebstrap. Packages come from the mirror that this host's apt is configured for, wheels from the
# package index that this host's pip is configured for. The build itself has no network.
set -eu
umask 022
cd "$(dirname "$0")/.."
suite=${1:?"which release? Example: packaging/build-deb.sh trixie"}
case $suite in
bookworm) python=3.11 revision=deb12 ;;
trixie) python=3.13 revision=deb13 ;;
*) echo "There is no package for $suite: bookworm (Debian 12) or trixie (Debian 13)." >&2; exit 2 ;;
esac
PIP=${PIP:-.venv/bin/pip}
work=$PWD/run/packages/build-$suite
wheels=$PWD/run/packages/wheels-$python
dist=$PWD/dist/$suite
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/mailwarden/__init__.py)~$revision
epoch=$(git log -1 --format=%ct)

for lock in run build; do
    "$PIP" download -qq --require-hashes --no-deps --only-binary :all: --python-version "$python" \
        --dest "$wheels" -r "requirements/$lock.txt"
done

packaging/clean-root.sh "$suite" "$work" build-essential debhelper libarchive13 libmagic1 libseccomp2 python3-venv
source=$work/build/mailwarden
mkdir -p "$source"
git ls-files -z src clients/python deploy docs requirements packaging/debian README.md LICENSE CHANGELOG.md pyproject.toml |
    tar --create --null --files-from=- | tar --extract --directory="$source"
mv "$source/packaging/debian" "$source/debian"
rmdir "$source/packaging"
cp -R "$wheels" "$work/build/wheels"
cat >"$source/debian/changelog" <<CHANGELOG
mailwarden ($version) $suite; urgency=medium

  * See CHANGELOG.md.

 -- The Mailwarden project <packages@mailwarden.example>  $(date --utc --rfc-email --date="@$epoch")
CHANGELOG
unshare --net --mount sh -eu -c 'mount -t proc proc "$0/proc" && exec chroot "$0" sh -eu -c "$1"' "$work" '
    export LC_ALL=C.UTF-8 WHEELS=/build/wheels
    cd /build/mailwarden
    dpkg-buildpackage --build=binary --no-sign >/build/log 2>&1 || { tail -n 60 /build/log; exit 1; }
'
rm -rf "$dist"
mkdir -p "$dist"
cp "$work"/build/*.deb "$work"/build/*.changes "$work"/build/*.buildinfo "$work/build/log" "$dist/"
rm -rf "$work"
ls -l "$dist"/*.deb
