"""The lists: the catalogue, entry kinds, storage, the replica, and matching with precedence."""
