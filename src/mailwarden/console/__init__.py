"""The web interface: keys, lists, and why a message was judged so. It has no SQL of its own."""
