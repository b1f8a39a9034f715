"""The process that analyzes messages, beside an MTA, on port 9785."""
