"""One file for each screen: its pages, and what they show."""
