"""The parts of a scan that run hostile bytes: worker processes and their sandbox, the collector, engines' questions."""
