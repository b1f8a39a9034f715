"""Every HKDF, HMAC and AEAD of the product; ciphertexts and MACs carry the id of their key."""
