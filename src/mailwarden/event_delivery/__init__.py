"""Delivery of events to receivers: webhooks, syslog and files, in the formats native, OCSF and ECS."""
