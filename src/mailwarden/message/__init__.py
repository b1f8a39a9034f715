"""From raw bytes to a Message, without network."""
