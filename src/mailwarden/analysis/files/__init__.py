"""The files of a message: their types, and readers of containers, documents and images."""
