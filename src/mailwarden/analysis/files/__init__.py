"""The files of a message: which of them are containers, and how each kind of container is opened."""
