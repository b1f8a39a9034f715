"""What both HTTP processes share: the hardened server, uploads, errors as answers, TLS."""
