"""Feeds into block lists: parsers, subscriptions, the rehearsal of every update, and sightings."""
