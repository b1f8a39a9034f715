"""The memory of a tenant about senders: contacts, domains, threads and bank details of earlier messages."""
