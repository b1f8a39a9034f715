"""Messages that are held back: their bytes, sealed; who they are for; and what becomes of them."""
