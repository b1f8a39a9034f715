"""The weekly report of a tenant: its figures, its sentences and the email."""
