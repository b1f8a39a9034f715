"""Opens encrypted Office documents by a password.

Security: works on hostile documents inside a killable worker; its callers bound the number of trials.
"""

import io
from contextlib import suppress

DEFAULT_PASSWORD = "VelvetSweatshop"  # noqa: S105 - Excel opens a workbook with it and asks nobody


def decrypt(content: bytes, password: str) -> bytes:
    """Return the document in plain form, or b"" where the password is wrong."""
    import msoffcrypto  # noqa: PLC0415 - dear to import, and few messages need it

    plain = io.BytesIO()
    with suppress(Exception):  # a wrong password and a broken document raise what they like
        document = msoffcrypto.OfficeFile(io.BytesIO(content))
        document.load_key(password=password, verify_password=True)
        document.decrypt(plain)
        return plain.getvalue()
    return b""
