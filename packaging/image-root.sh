#!/bin/sh
# Create the root of the image in FOLDER: Python, the libraries that Mailwarden loads, and the package, without a shell.
# Usage: packaging/image-root.sh FOLDER     Example: packaging/image-root.sh run/image/root
# Needs root, mmdebstrap, binutils and dist/bookworm/*.deb of packaging/build-deb.sh.
set -eu
umask 022
cd "$(dirname "$0")/.."
folder=${1:?"which folder? Example: packaging/image-root.sh run/image/root"}
packages=$(ls dist/bookworm/mailwarden_*.deb 2>/dev/null) || {
    echo "There is no package yet. Run: packaging/build-deb.sh bookworm" >&2
    exit 1
}
work=$PWD/run/image/installed
mkdir -p run/image
packaging/clean-root.sh bookworm "$work" ca-certificates libarchive13 libmagic1 libseccomp2 python3.11
cp $packages "$work/mailwarden.deb"
chroot "$work" sh -eu -c '
    apt-get install -y -qq --no-install-recommends /mailwarden.deb >/dev/null 2>&1
    rm /mailwarden.deb
    # Bytecode of every module, without times: the image changes the times of all files.
    python3.11 -m compileall -qq -f -j 0 --invalidation-mode unchecked-hash /usr/lib/python3.11 /usr/lib/mailwarden/lib || true'

# The files of these packages, and of every library that they link.
list=$PWD/run/image/files
chroot "$work" sh -eu -c '
    for package in python3.11 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libmagic1 libmagic-mgc \
        libarchive13 libseccomp2 libc6 libgcc-s1 libstdc++6 tzdata netbase media-types; do
        dpkg -L "$package" || true
    done
    dpkg -L mailwarden
    find /usr/lib/mailwarden
    find /usr/lib/python3.11 -name "*.pyc"
    {
        echo /usr/bin/python3.11
        find /usr/lib/python3.11 /usr/lib/mailwarden -name "*.so*" -type f
        dpkg -L libarchive13 libmagic1 libseccomp2 | grep "\.so"
    } | xargs ldd 2>/dev/null | sed -n "s/.* => \(\/[^ ]*\) .*/\1/p" | grep -v "^/usr/lib/mailwarden" | sort -u |
        while read -r library; do echo "$library"; readlink -f "$library"; done
    printf "%s\n" /lib64/ld-linux-x86-64.so.2 /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 /etc/ssl/certs/ca-certificates.crt \
        /etc/ld.so.cache /etc/ld.so.conf /etc/debian_version /usr/lib/os-release /etc/os-release' 2>/dev/null |
    grep -vE '^/(usr/share/(doc|man|lintian|locale|bash-completion|pixmaps|binfmts)|usr/bin/(pdb|pydoc|pygettext|ld|getconf|getent|iconv|locale|tzselect|zdump|ldd|catchsegv|pldd|xargs)|sbin|usr/sbin|lib/systemd|usr/lib/systemd|usr/lib/(sysusers|tmpfiles)\.d|usr/lib/[^/]*/(gconv|audit)|lib/[^/]*/(gconv|audit)|\.$)' |
    sed -E 's|^/||; s#^(lib|lib64|bin)/#usr/\1/#' | sort -u >"$list"
rm -rf "$folder"
mkdir -p "$folder/usr/lib" "$folder/usr/lib64"
ln -s usr/lib usr/lib64 "$folder/"
while read -r file; do
    [ -n "$file" ] && { [ -e "$work/$file" ] || [ -L "$work/$file" ]; } && printf '%s\0' "$file"
done <"$list" | tar --create --null --no-recursion --directory="$work" --files-from=- | tar --extract --directory="$folder"
rm -rf "$folder"/usr/lib/python3.11/test "$folder"/usr/lib/python3.11/idlelib "$folder"/usr/lib/python3.11/lib2to3 \
    "$folder"/usr/lib/python3.11/ensurepip "$folder"/usr/lib/python3.11/pydoc_data "$folder"/usr/lib/python3.11/tkinter
# The wheels' libraries carry symbols for debuggers, a fifth of the image.
find "$folder/usr" -name '*.so*' -type f -exec strip --strip-unneeded {} + 2>/dev/null || true
printf 'root:x:0:0:root:/root:/sbin/nologin\nmailwarden:x:65532:65532::/var/lib/mailwarden:/sbin/nologin\n' >"$folder/etc/passwd"
printf 'root:x:0:\nmailwarden:x:65532:\n' >"$folder/etc/group"
mkdir -p "$folder"/tmp "$folder"/proc "$folder"/sys "$folder"/dev "$folder"/etc/mailwarden "$folder"/run \
    "$folder"/var/lib/mailwarden "$folder"/var/lib/mailwarden-ca "$folder"/var/spool/mailwarden
chmod 1777 "$folder/tmp"
rm -rf "$work"
