"""Health check of abby or guard: succeeds if /readyz on the given port answers 200; runs inside the container."""

import ssl
import sys
import urllib.request

TLS = "/etc/mailwarden/tls"

context = ssl.create_default_context(cafile=f"{TLS}/ca.crt")
context.load_cert_chain(f"{TLS}/abby.crt", f"{TLS}/abby.key")  # guard answers no caller without a certificate
urllib.request.urlopen(f"https://127.0.0.1:{sys.argv[1]}/readyz", timeout=8, context=context)
