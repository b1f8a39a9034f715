"""Reports about messages: stored with the message, they train the tenant's own classifier in an engine."""
