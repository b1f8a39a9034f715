"""The process that scans, on port 9785: its sources (abby, SMTP, Rspamd's clients), its jobs, and how it starts."""
