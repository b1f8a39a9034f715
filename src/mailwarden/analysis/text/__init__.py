"""Reading the text of a message: folding, phrases, phone numbers, Bitcoin addresses, passwords."""
