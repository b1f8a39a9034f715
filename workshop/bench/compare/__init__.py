"""`make compare`: the answers and the CPU of two versions of the product, driven from outside."""
