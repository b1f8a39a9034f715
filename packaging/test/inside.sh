#!/bin/bash
# Runs inside the booted root: the documented commands, then the checks. Prints `ok NAME` or `FAIL NAME` for each.
cd "$(dirname "$0")" || exit 1
. ./booted.sh

delivered() { [ "$(grep -c '^X-Mailwarden-Verdict: clean' /var/mail/alice)" -ge "$1" ]; }
held() { [ "$(as_service mailwarden quarantine list | grep -c 'Package test')" = "$1" ]; }
main_pid() { systemctl show -P MainPID "$1"; }
restarted() { [ "$(systemctl show -P NRestarts mailwarden-guard)" -ge "$1" ] && systemctl is-active --quiet mailwarden-guard; }
cannot_write() { # UNIT PATH: inside the unit's file systems, even as root
    ! nsenter --target "$(main_pid "$1")" --mount touch "$2"
}
can_write() { nsenter --target "$(main_pid "$1")" --mount sh -c "touch $2 && rm $2"; }

prepare_host alice # the host as its operator has it
systemctl is-active mailwarden-guard && echo "FAIL guard does not start before init" >&3

sh -eux ./step2.sh >>log || echo "FAIL step 2 of docs/install.md" >&3
sh -eux ./step3.sh >>log || echo "FAIL step 3 of docs/install.md" >&3
grep -v 'doctor' step4.sh >start.sh
sh -eux ./start.sh >>log || echo "FAIL step 4 of docs/install.md" >&3

check "a plain message is delivered over SMTP" python3 send.py plain
eventually 60 delivered 1 && date +%s >first-verdict
check "the delivered message has its verdict" delivered 1
check "EICAR is answered with 250" python3 send.py eicar
check "EICAR is in the quarantine" eventually 30 held 1
check "doctor: all well" eventually 180 sh -eu -c "$(grep doctor step4.sh)"
check "engines check" mailwarden engines check rspamd clamav unbound postfix-before-queue
for unit in mailwarden-guard mailwarden-abby; do
    check "$unit: exposure at most 1.5" systemd-analyze security --no-pager --threshold=15 "$unit.service"
    for path in /usr/x /etc/mailwarden/x /var/lib/x /var/spool/x /home/x; do
        check "$unit: $path cannot be written" cannot_write "$unit" "$path"
    done
    check "$unit: state and spool can be written" can_write "$unit" "/var/lib/mailwarden/x /var/spool/mailwarden/x"
done
check "workers are in the sandbox" sh -c 'journalctl -u mailwarden-guard -o cat | grep workers_started | grep landlock | grep -q seccomp'

cp -R /usr/share/mailwarden/yara /etc/mailwarden/yara
echo 'yara: {rules: yara}' >>/etc/mailwarden/guard/core/guard.yml
check "guard restarts with YARA rules" systemctl restart mailwarden-guard
check "a YARA rule holds a message" sh -c 'python3 send.py yara'
check "its message is in the quarantine" eventually 30 held 2

before=$(main_pid mailwarden-guard)
check "reload" systemctl reload mailwarden-guard
check "reload keeps the process" [ "$before" = "$(main_pid mailwarden-guard)" ]
systemctl kill --signal=KILL mailwarden-guard
check "guard restarts after kill -9" eventually 60 restarted 1
check "and delivers again" python3 send.py plain
check "the second message is delivered" eventually 30 delivered 2
mkdir -p /run/systemd/system/mailwarden-guard.service.d
printf '[Service]\nWatchdogSec=5\n' >/run/systemd/system/mailwarden-guard.service.d/watchdog.conf
systemctl daemon-reload && systemctl restart mailwarden-guard
sleep 1
kill -STOP "$(main_pid mailwarden-guard)"
check "the watchdog restarts a guard that hangs" eventually 90 restarted 1

check "a second guard: documented commands" sh -eux ./second-guard.sh
sed -i 's|^      - "https://127.0.0.1:9785"|&\n      - "https://127.0.0.1:9786"|' /etc/mailwarden/abby/abby/abby.yml
systemctl restart mailwarden-abby
check "both guards are well" eventually 60 sh -c "runuser -u mailwarden -- mailwarden doctor | tee /dev/stderr | grep -q 'guard 127.0.0.1:9786' && runuser -u mailwarden -- mailwarden doctor"
check "mailwarden-guard@2: cannot write to the first guard's state" cannot_write mailwarden-guard@2 /var/lib/mailwarden/x
systemctl stop mailwarden-guard@2
check "a socket unit: documented commands" sh -eux ./socket.sh
systemctl stop mailwarden-guard.service
check "the socket unit accepts a connection for a stopped guard" bash -c ': </dev/tcp/127.0.0.1/9785'
check "guard is active again" eventually 60 systemctl is-active mailwarden-guard
systemctl disable --now mailwarden-guard.socket

check "engines remove" mailwarden engines remove rspamd clamav unbound postfix-before-queue
systemctl disable --now mailwarden-guard@2
rm -rf /etc/mailwarden-2 /var/lib/mailwarden-2 /var/spool/mailwarden-2 /run/systemd/system/mailwarden-guard.service.d
check "purge" env DEBIAN_FRONTEND=noninteractive apt-get purge --yes mailwarden
left=$(find / -xdev -iname '*mailwarden*' ! -path '/proc/*' ! -path '/sys/*' ! -path '/srv/*' ! -path '/run/*' ! -path '/test/*' \
    ! -path '/var/lib/postgresql/*' ! -path '/etc/apt/*' ! -path '/usr/share/keyrings/*' ! -path '/var/lib/apt/*' ! -path '/var/cache/*')
check "purge leaves no file" [ -z "$left" ]
check "purge leaves no user" sh -c '! getent passwd mailwarden && ! getent group mailwarden'
check "purge leaves no process" sh -c '! grep -lq /usr/lib/mailw[a]rden /proc/[0-9]*/maps'
for unit in mailwarden-guard mailwarden-abby rspamd clamav-daemon unbound postfix; do
    journalctl --no-pager -u $unit >"journal-$unit"
done
echo done >&3
