"""The weekly report of a tenant: its figures, its sentences, the PDF file and the email."""
