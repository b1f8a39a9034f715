"""Health check of abby and guard: succeeds if /readyz on each given port answers 200; runs inside the container."""

import ssl
import sys
import urllib.request

TLS = "/etc/mailwarden/tls"

context = ssl.create_default_context(cafile=f"{TLS}/ca.crt")
context.load_cert_chain(f"{TLS}/abby.crt", f"{TLS}/abby.key")  # guard answers no caller without a certificate
for port in sys.argv[1:]:
    urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", timeout=8 / len(sys.argv[1:]), context=context)
