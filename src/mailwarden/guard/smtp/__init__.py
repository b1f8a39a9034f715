"""The scan source `smtp`: the port, the sessions, delivery of each decision, and the client of the next hop."""
