"""Cells: deployments of one fleet, the directory of their tenants, and moves of tenants between them."""
