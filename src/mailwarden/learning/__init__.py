"""What the people of a tenant say of messages, kept as lessons: the truth that its statistics are made from."""
