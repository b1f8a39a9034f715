#!/bin/bash
# Runs inside the booted root: restores each backup and uses it. Writes `ok NAME` or `FAIL NAME` for each check.
cd "$(dirname "$0")" || exit 1
. ./booted.sh

# The new host, with engines that have the shipped settings.
prepare_host bob
sh -eux ./engines.sh >>log || echo "FAIL the settings of the engines" >&3
systemctl restart postfix

mailwarden init "$PWD/fresh" --no-database >>log # for the addresses of engines with the shipped settings
password=$(openssl rand -hex 16)
runuser -u postgres -- psql --quiet --command="CREATE ROLE mailwarden LOGIN PASSWORD '$password'"
for archive in previous upgraded; do
    chown mailwarden $archive.tar
    systemctl stop mailwarden-all
    rm -rf /etc/mailwarden /var/lib/mailwarden/* /var/spool/mailwarden/* /var/mail/bob
    runuser -u postgres -- dropdb --if-exists mailwarden
    runuser -u postgres -- createdb --owner=mailwarden mailwarden
    install --directory --owner=mailwarden --group=mailwarden --mode=0750 /etc/mailwarden
    check "$archive.tar: restore" as_service mailwarden restore "$PWD/$archive.tar" --config /etc/mailwarden \
        --database-url "postgresql://mailwarden:$password@127.0.0.1/mailwarden" \
        --state /var/lib/mailwarden --spool /var/spool/mailwarden
    check "$archive.tar: addresses of this host" /usr/lib/mailwarden/bin/python restored_client.py addresses
    check "$archive.tar: config check" as_service mailwarden config check
    systemctl start mailwarden-all
    check "$archive.tar: the API key works" eventually 60 python3 restored_client.py key
    check "$archive.tar: the list entry acts on a scan" eventually 120 python3 restored_client.py entry
    check "$archive.tar: the held message is released" python3 restored_client.py release
    check "$archive.tar: the released message is in the mailbox, unchanged" eventually 60 python3 restored_client.py mailbox
done
check "doctor: all well" eventually 180 as_service mailwarden doctor
for unit in mailwarden-all rspamd clamav-daemon unbound postfix; do
    journalctl --no-pager -u $unit >"journal-$unit"
done
echo done >&3
