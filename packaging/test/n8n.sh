#!/bin/sh
# Run the workflow of clients/n8n in n8n itself, against a real abby.
# Usage: packaging/test/n8n.sh (needs npm and Node 20 or newer; installs about 1.7 GB into run/n8n)
set -eu
cd "$(dirname "$0")/../.."
mkdir -p run/n8n
# n8n names one package by an address outside the registry; the workflow does not use it.
cat >run/n8n/package.json <<'END'
{
  "name": "n8n-of-the-test", "private": true,
  "dependencies": {"n8n": "1.123.81"},
  "overrides": {"xlsx": "npm:xlsx@0.18.5"}
}
END
(
    cd run/n8n
    [ -e node_modules/n8n/bin/n8n ] || npm install --no-audit --no-fund --ignore-scripts --loglevel=error
    [ -e node_modules/sqlite3/build/Release/node_sqlite3.node ] || npm rebuild sqlite3 --loglevel=error
)
MAILWARDEN_N8N=run/n8n/node_modules/n8n/bin/n8n .venv/bin/pytest -q tests/acceptance/test_integrations.py -k n8n
