"""The words of the contract as frozen data."""
