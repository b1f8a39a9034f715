#!/bin/sh
# Add packages to a signed apt repository; create it first if it is missing.
# Usage: packaging/repository.sh FOLDER KEY DEB...     KEY is the id of a secret key in gpg's key ring
# Example: packaging/repository.sh /srv/mailwarden packages@company.example dist/*/*.deb
# The release of a package is in its version: ~deb12 is bookworm, ~deb13 is trixie. Clients need FOLDER/mailwarden.gpg.
set -eu
folder=${1:?"which folder?"}
key=${2:?"which key? gpg --list-secret-keys shows them"}
shift 2
for program in reprepro gpg; do
    command -v $program >/dev/null || { echo "$program is missing. Run: apt-get install reprepro gnupg" >&2; exit 1; }
done
fingerprint=$(gpg --batch --with-colons --list-secret-keys "$key" | awk -F: '/^fpr/ { print $10; exit }')
[ -n "$fingerprint" ] || { echo "There is no secret key $key. Run: gpg --quick-generate-key $key ed25519 sign never" >&2; exit 1; }
mkdir -p "$folder/conf"
if [ ! -e "$folder/conf/distributions" ]; then
    for suite in bookworm trixie; do
        printf 'Origin: Mailwarden\nLabel: Mailwarden\nCodename: %s\nArchitectures: amd64 arm64\nComponents: main\nSignWith: %s\n\n' \
            "$suite" "$fingerprint"
    done >"$folder/conf/distributions"
fi
for package in "$@"; do
    case $(dpkg-deb --field "$package" Version) in
    *~deb12*) suite=bookworm ;;
    *~deb13*) suite=trixie ;;
    *) echo "$package is for no known release: its version has no ~deb12 or ~deb13." >&2; exit 1 ;;
    esac
    reprepro --silent --basedir "$folder" includedeb "$suite" "$package"
    echo "$suite: $(dpkg-deb --field "$package" Package Version | tr '\n' ' ')"
done
reprepro --silent --basedir "$folder" export
gpg --batch --export "$fingerprint" >"$folder/mailwarden.gpg"
