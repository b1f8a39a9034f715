"""The parts that both HTTP processes share: the hardened server, uploads, error responses, TLS."""
