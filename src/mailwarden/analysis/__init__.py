"""Looking at messages: the analyzers, what they all see of a message, its links and its text."""
