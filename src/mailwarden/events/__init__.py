"""The event outbox: events are written in the transaction of the change, and read in order by a cursor."""
