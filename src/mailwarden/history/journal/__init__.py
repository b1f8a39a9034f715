"""The journal: finished requests on guard's disk until the history store has them."""
