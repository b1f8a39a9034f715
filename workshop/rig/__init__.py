"""The rig: starts the real servers that Mailwarden needs, for tests and for trying it out, and stops them again."""
