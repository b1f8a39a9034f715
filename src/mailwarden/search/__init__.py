"""The query language of searches: its terms, its suggestions, and the words of each field."""
