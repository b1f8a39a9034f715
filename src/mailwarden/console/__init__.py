"""The web interface of Mailwarden, without SQL of its own."""
