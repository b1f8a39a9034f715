#!/bin/bash
# Runs inside the booted root: the documented commands, then the checks. Prints `ok NAME` or `FAIL NAME` for each.
cd "$(dirname "$0")" || exit 1
. ./booted.sh
export DEBIAN_FRONTEND=noninteractive
all=mailwarden-all

delivered() { [ "$(grep -c '^X-Mailwarden-Verdict: clean' /var/mail/alice)" -ge "$1" ]; }
held() { [ "$(as_service mailwarden quarantine list | grep -c 'Package test')" = "$1" ]; }
main_pid() { systemctl show -P MainPID "$1"; }
restarted() { [ "$(systemctl show -P NRestarts $all)" -ge "$1" ] && systemctl is-active --quiet $all; }
cannot_write() { # UNIT PATH: inside the unit's file systems, even as root
    ! nsenter --target "$(main_pid "$1")" --mount touch "$2"
}
can_write() { nsenter --target "$(main_pid "$1")" --mount sh -c "touch $2 && rm $2"; }
units_are() { # WORDS: is-enabled and is-active of mailwarden-all, mailwarden-guard and mailwarden-abby
    local units="mailwarden-all mailwarden-guard mailwarden-abby"
    [ "$(echo $(systemctl is-enabled $units) $(systemctl is-active $units) | tee -a log)" = "$1" ]
}
ONE="enabled disabled disabled active inactive inactive"
TWO="disabled enabled enabled inactive active active"
GUARD_ALONE="disabled enabled disabled inactive active inactive"
confined() { # UNIT: its exposure and its files
    check "$1: exposure at most 1.5" systemd-analyze security --no-pager --threshold=15 "$1.service"
    for path in /usr/x /etc/mailwarden/x /var/lib/x /var/spool/x /home/x; do
        check "$1: $path cannot be written" cannot_write "$1" "$path"
    done
    check "$1: state and spool can be written" can_write "$1" "/var/lib/mailwarden/x /var/spool/mailwarden/x"
}
sent=0
delivers() { # NAME: a plain message reaches the mailbox
    sent=$((sent + 1))
    check "$1" python3 send.py plain
    check "$1: it has its verdict" eventually 60 delivered $sent
}
doctor() { eventually 180 sh -eu -c "$(grep doctor step4.sh)"; }

prepare_host alice # the host as its operator has it
check "a new installation enables one process, which waits for init" \
    units_are "enabled disabled disabled inactive inactive inactive"

sh -eux ./step2.sh >>log || echo "FAIL step 2 of docs/install.md" >&3
sh -eux ./step3.sh >>log || echo "FAIL step 3 of docs/install.md" >&3
grep -v 'doctor' step4.sh >start.sh
sh -eux ./start.sh >>log || echo "FAIL step 4 of docs/install.md" >&3

delivers "a plain message is delivered over SMTP"
delivered 1 && date +%s >first-verdict
check "one process serves both" units_are "$ONE"
check "EICAR is answered with 250" python3 send.py eicar
check "EICAR is in the quarantine" eventually 30 held 1
check "doctor: all well" doctor
check "doctor: phrases have their database" sh -c "runuser -u mailwarden -- mailwarden doctor | grep '^ok    phrases .*Vectorscan'"
check "workers use the database of phrases" sh -c "journalctl -u $all -o cat | grep workers_started | grep -q vectorscan"
check "engines check" mailwarden engines check rspamd clamav unbound postfix-before-queue
confined $all
check "workers are in the sandbox" sh -c "journalctl -u $all -o cat | grep workers_started | grep landlock | grep -q seccomp"

cp -R /usr/share/mailwarden/yara /etc/mailwarden/yara
echo 'yara: {rules: yara}' >>/etc/mailwarden/guard/core/guard.yml
check "the process restarts with YARA rules" systemctl restart $all
check "a YARA rule holds a message" sh -c 'python3 send.py yara'
check "its message is in the quarantine" eventually 30 held 2

before=$(main_pid $all)
check "reload" systemctl reload $all
check "reload keeps the process" [ "$before" = "$(main_pid $all)" ]
check "reload reads both files" eventually 30 sh -c "[ \$(journalctl -u $all -o cat | grep -c settings_reloaded) = 2 ]"
systemctl kill --signal=KILL $all
check "the process restarts after kill -9" eventually 60 restarted 1
delivers "after kill -9 a message is delivered again"
mkdir -p /run/systemd/system/$all.service.d
printf '[Service]\nWatchdogSec=5\n' >/run/systemd/system/$all.service.d/watchdog.conf
systemctl daemon-reload && systemctl restart $all
sleep 1 # the watchdog counts from the start on: the process must have answered it once
kill -STOP "$(main_pid $all)"
check "the watchdog restarts a process that hangs" eventually 90 restarted 1
rm -r /run/systemd/system/$all.service.d
systemctl daemon-reload

check "backup" mailwarden backup /tmp/package-test.tar
check "a backup as the user of the services is refused, with the file that it lacks" \
    sh -c "! runuser -u mailwarden -- mailwarden backup /tmp/refused.tar 2>refused && grep -q tls/ca.key refused"
check "a second guard: documented commands" sh -eux ./second-guard.sh
sed -i 's|^      - "https://127.0.0.1:9785"|&\n      - "https://127.0.0.1:9786"|' /etc/mailwarden/abby/abby/abby.yml
systemctl restart $all
check "both guards are well" eventually 60 sh -c "runuser -u mailwarden -- mailwarden doctor | grep -q 'guard 127.0.0.1:9786' && runuser -u mailwarden -- mailwarden doctor"
check "mailwarden-guard@2: cannot write to the first guard's state" cannot_write mailwarden-guard@2 /var/lib/mailwarden/x
systemctl stop mailwarden-guard@2
sed -i '/127.0.0.1:9786/d' /etc/mailwarden/abby/abby/abby.yml

check "socket units: documented commands" sh -eux ./socket.sh
systemctl stop $all.service
check "a socket unit accepts a connection for a stopped process" bash -c ': </dev/tcp/127.0.0.1/9785'
check "the process is active again" eventually 60 systemctl is-active $all
systemctl stop $all.service
check "abby's socket unit does too" bash -c ': </dev/tcp/127.0.0.1/9081'
check "and the process is active again" eventually 60 systemctl is-active $all
check "doctor: all well with socket units" doctor

check "two services: the documented command" sh -eux ./two.sh
check "two services run, and the process of both has stopped" units_are "$TWO"
check "the sockets of one process are closed" sh -c '! systemctl is-active mailwarden-all-abby.socket && ! systemctl is-enabled mailwarden-all-guard.socket'
delivers "two services deliver a message"
check "doctor: all well with two services" doctor
confined mailwarden-guard
confined mailwarden-abby
check "an upgrade of two services installs" dpkg --install mailwarden.deb
check "an upgrade keeps the two services" eventually 60 units_are "$TWO"
systemctl disable --now mailwarden-abby
check "an upgrade of a scan node installs" dpkg --install mailwarden.deb
check "an upgrade keeps guard alone" eventually 60 units_are "$GUARD_ALONE"
systemctl enable --now mailwarden-abby
systemctl enable $all
check "doctor: both kinds of units are not well" sh -c "! runuser -u mailwarden -- mailwarden doctor >both && grep '^FAIL  units' both"
systemctl disable $all
systemctl start $all
check "starting the other kind stops the two services" units_are "disabled enabled enabled active inactive inactive"
check "one process: the documented command" sh -eux ./one.sh
check "one process runs, and the two services have stopped" units_are "$ONE"
delivers "one process delivers a message again"
check "an upgrade installs" dpkg --install mailwarden.deb
check "an upgrade keeps one process" eventually 60 units_are "$ONE"

systemctl disable --now mailwarden-guard@2
rm -rf /etc/mailwarden-2 /var/lib/mailwarden-2 /var/spool/mailwarden-2
# the documented removal
check "engines remove" mailwarden engines remove rspamd clamav unbound postfix-before-queue
check "purge" apt-get purge --yes mailwarden
left=$(find / -xdev -iname '*mailwarden*' ! -path '/proc/*' ! -path '/sys/*' ! -path '/srv/*' ! -path '/run/*' ! -path '/test/*' \
    ! -path '/var/lib/postgresql/*' ! -path '/etc/apt/*' ! -path '/usr/share/keyrings/*' ! -path '/var/lib/apt/*' ! -path '/var/cache/*')
echo "left: $left" >>log
check "purge leaves no file" [ -z "$left" ]
check "purge leaves no user" sh -c '! getent passwd mailwarden && ! getent group mailwarden'
check "purge leaves no process" sh -c '! grep -lq /usr/lib/mailw[a]rden /proc/[0-9]*/maps'
for unit in mailwarden-all mailwarden-guard mailwarden-abby rspamd clamav-daemon unbound postfix; do
    journalctl --no-pager -u $unit >"journal-$unit"
done
echo done >&3
