"""Every limit on what one message may cost, in one table.

A reader that a limit stops records it in the message's `Coverage` (or as a `Trip` of the structure check), so the
message is never `clean`. `tests/evasion/test_limits.py` finds every field here, and fails if a field has no message
beyond it or if that message is `clean`. `SHOWN` bounds what people are shown and stops no inspection.
"""

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB


class Limits(Struct, frozen=True):
    """What one message may cost. Ordinary mail reaches none of these."""

    # The structure check, before any parser or engine.
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

    # Text, pages and links.
    text: int = 2 * MIB  # characters of readable text that analyzers search
    html: int = 16 * MIB  # characters of one page
    html_scripts: int = 4 * MIB  # characters of the scripts of one page
    html_text: int = 2 * MIB  # characters of the text of one page
    html_nodes: int = 200_000  # elements of one page that one selector may find
    pages: int = 500
    urls: int = 20_000  # different links of the message
    url: int = 64 * KIB
    calendar_fields: int = 10_000

    # Files: attachments, and the files inside of containers. One budget for the whole message.
    files: int = 10_000
    file_bytes: int = 100 * MIB  # one unpacked file
    unpacked_bytes: int = 400 * MIB  # all unpacked files together
    container_depth: int = 12  # archives, messages and other containers inside each other
    ratio: int = 250  # how many times its packed size a file may unpack to
    ratio_from: int = 1 * MIB  # unpacked bytes from which the ratio counts

    # The archive readers of before, until the budget above replaces them.
    archive_depth: int = 8
    archive_files: int = 10_000
    archive_bytes: int = 400 * MIB
    archive_member: int = 100 * MIB
    archive_ratio: int = 250
    archive_ratio_from: int = 1 * MIB

    # PDF files.
    pdf_seconds: int = 5  # processor time of all PDF files of the message
    pdf_pages: int = 5_000  # pages of one file whose links are read
    pdf_objects: int = 500_000
    pdf_definitions: int = 100  # of one object: every change that is appended to a file defines it again
    pdf_unpacked: int = 64 * MIB  # decoded object streams of one file
    pdf_dictionary: int = 1 * MIB
    pdf_script: int = 2 * MIB  # all scripts of one file
    pdf_scripts: int = 20_000  # forms have a script for each field
    pdf_actions: int = 20_000


class Shown(Struct, frozen=True):
    """How much of a value people are shown; nothing is inspected less because of it."""

    fact: int = 200  # a value in a sentence
    name: int = 255  # a file name
    path: int = 1_000  # a file's place inside of archives
    subject: int = 998


class Kept(Struct, frozen=True):
    """How many remarks of one kind are kept; the first is enough to act on."""

    ambiguities: int = 50
    missed: int = 100


LIMITS = Limits()
KEPT = Kept()
SHOWN = Shown()
