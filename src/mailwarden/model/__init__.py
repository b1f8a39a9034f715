"""The terms of the contract as frozen data."""
