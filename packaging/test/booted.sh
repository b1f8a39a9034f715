# Sourced by the scripts that run inside a booted root, in their folder. A check writes `ok NAME` or `FAIL NAME` to result.
export PYTHONDONTWRITEBYTECODE=1
trap 'systemctl poweroff' EXIT
exec 3>>result 2>>log
set -x

check() { # NAME COMMAND...: one line in the summary
    local name=$1
    shift
    if "$@" >>log; then echo "ok $name" >&3; else echo "FAIL $name" >&3; fi
}
eventually() { # SECONDS COMMAND...: repeat until it succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 1
    done
}
as_service() { runuser -u mailwarden -- "$@"; }
prepare_host() { # USER: a domain with this user's mailbox, the internet of the test, signatures that are not fetched
    useradd --create-home "$1"
    postconf -e 'mydestination = company.example, localhost' 'inet_interfaces = loopback-only' 'inet_protocols = ipv4' \
        'myhostname = mx.company.example'
    cp internet.conf /etc/unbound/unbound.conf.d/
    python3 -c 'import send; print("Test.Eicar:0:0:" + send.EICAR.encode().hex())' >/var/lib/clamav/test.ndb
    mkdir -p /var/lib/clamav/main.inc /var/lib/clamav/daily.inc # clamd's unit waits for files of these names
}
