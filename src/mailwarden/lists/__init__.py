"""The lists: which exist, how their entries are written, stored and met again, and which of them wins."""
