#!/bin/sh
# Build the image from the package of Debian 12, as localhost/mailwarden:VERSION and dist/mailwarden-VERSION.oci.tar.
# Usage: packaging/image.sh
# Needs root, buildah and what packaging/image-root.sh needs; builds dist/bookworm first if it is missing.
set -eu
cd "$(dirname "$0")/.."
command -v buildah >/dev/null || {
    echo "buildah is not installed. Run: apt-get install buildah" >&2
    exit 1
}
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/mailwarden/__init__.py)
epoch=$(git log -1 --format=%ct)
ls dist/bookworm/mailwarden_*.deb >/dev/null 2>&1 || packaging/build-deb.sh bookworm
packaging/image-root.sh run/image/root
container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null' EXIT
buildah copy --quiet "$container" run/image/root / >/dev/null
# `copy` gives all files to root. A new volume gets the owner of the folder that it is mounted at.
mounted=$(buildah mount "$container")
for folder in etc/mailwarden var/lib/mailwarden var/lib/mailwarden-ca var/spool/mailwarden; do
    chown 65532:65532 "$mounted/$folder"
done
buildah umount "$container" >/dev/null
# No program in the image can search for libraries, so libarchive is named.
library=$(cd run/image/root && ls -d usr/lib/*/libarchive.so.13)
buildah config --user 65532:65532 --workingdir / --port 9081 --port 9785 --env "LIBARCHIVE=/$library" \
    --env PYTHONDONTWRITEBYTECODE=1 --entrypoint '["/usr/bin/mailwarden"]' --cmd --help \
    --label org.opencontainers.image.title=Mailwarden --label "org.opencontainers.image.version=$version" "$container"
buildah commit --quiet --timestamp "$epoch" --format oci "$container" "localhost/mailwarden:$version" >/dev/null
buildah tag "localhost/mailwarden:$version" localhost/mailwarden:latest
archive=dist/mailwarden-$version.oci.tar
rm -rf run/image/layout
buildah push --quiet "localhost/mailwarden:$version" "oci:run/image/layout:mailwarden:$version"
# An archive by buildah has the time of its writing.
tar --create --file="$archive" --directory=run/image/layout --sort=name --mtime="@$epoch" --owner=0 --group=0 \
    --numeric-owner --mode=u=rwX,go=rX --format=ustar blobs index.json oci-layout
rm -rf run/image/layout
echo "image: localhost/mailwarden:$version, $(du -sm run/image/root | cut -f1) MB; $archive, $(du -m "$archive" | cut -f1) MB"
rm -rf run/image/root
