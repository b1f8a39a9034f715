#!/bin/sh
# Follow the client's README with the oldest Python that it supports: 3.9, in a clean root of Debian 11.
# Usage: packaging/test/client.sh (as root; needs mmdebstrap)
set -eu
cd "$(dirname "$0")/../.."
pip=$PWD/.venv/bin/pip
folder=$PWD/run/client-python
root=$folder/root
packaging/clean-root.sh bullseye "$root" python3 python3-venv
mkdir -p "$root/wheels"
"$pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$root/wheels" clients/python
# pip on the host reads markers such as python_version for itself: async-timeout is needed by Python 3.9 only.
for platform in manylinux2014 manylinux_2_28; do set -- "$@" --platform "${platform}_$(uname -m)"; done
"$pip" download --quiet --dest "$root/wheels" --python-version 3.9 --only-binary :all: "$@" \
    "aiohttp>=3.10,<4" "async-timeout>=4,<6" typing_extensions
env -u PIP_FIND_LINKS -u PIP_CERT chroot "$root" sh -eu -c '
    python3 -m venv /venv
    /venv/bin/pip install --quiet --no-index --find-links /wheels mailwarden-client
    /venv/bin/python --version'
# The interpreter sees the folders of the test.
cat >"$folder/python" <<END
#!/bin/sh
exec unshare --mount sh -eu -c 'mount --bind /tmp "$root/tmp" && exec chroot "$root" /venv/bin/python "\$@"' sh "\$@"
END
chmod 755 "$folder/python"
MAILWARDEN_CLIENT_PYTHON=$folder/python .venv/bin/pytest -q tests/acceptance/test_client_docs.py -k as_pasted
