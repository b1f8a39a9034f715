"""Gives folded header lines back the line ends that the milter protocol takes from them.

A milter is told the value of a folded field with bare line feeds in it, and Rspamd's proxy sends on what it was told.
The MTA has the message with whole line ends: what is judged and signed should be that.

Security: reads the header block of hostile messages. Only a line feed that a blank follows is given a carriage return.
"""

import re
from pathlib import Path

from mailwarden.serving.spool import CHUNK, Spooled, SpoolWriter

_BARE_FOLD = re.compile(rb"(?<!\r)\n(?=[ \t])")


async def mend_folds(raw: Spooled, spool: Path) -> Spooled:
    """Return the message with whole line ends in its header block; it takes the place of the one given."""
    head = next(raw.chunks(CHUNK), b"")
    end = head.find(b"\r\n\r\n")
    block = head[: max(end, 0)]
    mended = _BARE_FOLD.sub(b"\r\n", block)
    if mended == block:
        return raw
    writer = SpoolWriter(spool)
    try:
        await writer.write(mended)
        async for chunk in raw.window(end, raw.size - end).stream():
            await writer.write(chunk)
        return await writer.finish()
    finally:
        writer.discard()
        raw.close()
