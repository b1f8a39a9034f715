"""Cases: the reports of one campaign together, and the answer to its reporters."""
