#!/bin/sh
# Print the Debian mirror that this host's apt is configured for.
set -eu
. /etc/os-release
apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' "Codename: $VERSION_CODENAME" |
    head -n 1 | grep .
