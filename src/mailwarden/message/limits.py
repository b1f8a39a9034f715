"""Every limit that a hostile message runs into, as named data in one place."""

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB


class Limits(Struct, frozen=True):
    """What one message may cost us. A tripped limit is a result of the analysis, never an error."""

    header_block: int = 512 * KIB
    lines: int = 2_000_000  # 50 MiB of base64 has 700,000; of line feeds alone, an engine dies
    headers: int = 2_000
    headers_in_all: int = 20_000  # over all parts together
    header: int = 64 * KIB
    long_header: int = 256 * KIB  # To, Cc and References grow with the conversation
    depth: int = 32  # multipart and message/rfc822 together
    parts: int = 1_000
    boundary: int = 1_024
    boundary_candidates: int = 100_000
    parameters: int = 100
    comment_depth: int = 8
    addresses: int = 1_000
    urls: int = 10_240
    url: int = 8 * KIB
    html: int = 16 * MIB
    html_scripts: int = 256 * KIB
    html_text: int = 1 * MIB
    archive_depth: int = 8
    archive_files: int = 10_000
    archive_bytes: int = 400 * MIB
    archive_member: int = 100 * MIB
    archive_ratio: int = 250
    archive_ratio_from: int = 1 * MIB
    ambiguities: int = 50  # sentences kept for people; one is enough to tag the message


LIMITS = Limits()
