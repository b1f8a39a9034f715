"""Every limit on the cost of one message, in one table.

A reader that a limit stops records it in the message's `Coverage` (or as a `Trip` of the structure check), so the
message is never `clean`. `tests/evasion/test_limits.py` finds every field here, and fails if a field has no message
beyond it or if that message is `clean`. `SHOWN` bounds what people are shown and stops no inspection.
"""

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB


class Limits(Struct, frozen=True):
    """The limits of one message. Ordinary mail reaches none of them."""

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
    text: int = 4 * MIB  # characters of readable text that analyzers search
    html: int = 64 * MIB  # characters of one page or text, attached ones too
    html_scripts: int = 4 * MIB  # characters of the scripts of one page
    html_text: int = 4 * MIB  # characters of the text of one page
    html_nodes: int = 200_000  # elements of one page that one selector may find
    html_depth: int = 2_000  # elements inside each other; deeper ones cost the parser quadratic time
    link_text: int = 64 * KIB  # characters of the text of one link
    pages: int = 500  # and texts, every reading counted
    carried_depth: int = 4  # pages inside of data URIs, inside of each other
    texts: int = 50  # alternative texts that some clients show
    urls: int = 20_000  # different links of the message
    urls_written: int = 1_000_000  # links of one text, repeated ones counted as often as they are written
    url: int = 64 * KIB  # characters
    redirections: int = 20  # addresses inside of one address
    calendar_fields: int = 50_000
    xml_entities: int = 1_000  # of one document

    # Files: attachments, and the files inside of containers. One budget for the whole message.
    files: int = 10_000
    file_bytes: int = 100 * MIB  # one unpacked file
    unpacked_bytes: int = 400 * MIB  # all unpacked files together
    container_depth: int = 12  # archives, messages and other containers inside each other
    ratio: int = 250  # how many times its packed size a file may unpack to
    ratio_from: int = 1 * MIB  # unpacked bytes from which the ratio counts
    unpack_seconds: int = 10  # processor time to open all containers
    passwords: int = 500  # candidates from the message's text that are tried

    # Parts sent to an engine one by one, if it may parse the message differently.
    engine_contents: int = 200
    engine_bytes: int = 16 * MIB

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

    # Office documents.
    office_members: int = 10_000  # parts, streams or objects of one document
    office_member: int = 64 * MIB
    office_bytes: int = 256 * MIB  # all unpacked parts of one document
    office_relations: int = 100_000  # of one part
    office_code: int = 1 * MIB  # source of the macros of one document
    office_fields: int = 100_000
    office_field: int = 64 * KIB
    office_trials: int = 40  # passwords that are tried in all; a trial costs a tenth of a second by design

    yara_matches: int = 1_000  # different rules of the operator that match

    # Pictures, and the codes for cameras that they show.
    picture_seconds: int = 6  # processor time for all pictures, pages of PDF files and drawings of the message
    picture_pixels: int = 64_000_000  # that are decoded at once
    jpeg_pixels: int = 400_000_000  # a JPEG is made smaller while it is decoded
    picture_frames: int = 1_000
    picture_tiles: int = 400  # of all pictures that are looked at in tiles, in full size
    picture_pieces: int = 400  # pictures that may be the pieces of one
    recognition_seconds: int = 10  # processor time to recognize the text in all pictures
    codes: int = 1_000
    drawings: int = 500
    drawing_side: int = 1_000  # fields of a drawing that is made of text or of cells
    drawing_line: int = 2_000  # characters
    vector_shapes: int = 50_000
    vector_points: int = 300_000
    vector_painted: int = 400_000_000  # pixels; shapes that lie on each other paint the same ones again


class Shown(Struct, frozen=True):
    """The length of values shown to users; inspection does not depend on it."""

    fact: int = 200  # a value in a sentence
    word: int = 80  # words of the message in a sentence
    name: int = 255  # a file name
    path: int = 1_000  # a file's place inside of archives
    subject: int = 998
    link: int = 500  # the address of a link
    links: int = 50  # links that history keeps
    hosts: int = 256  # hosts that history keeps
    references: int = 10  # messages of a conversation that history keeps


class Kept(Struct, frozen=True):
    """The number of remarks of one kind that are kept; the first one decides."""

    ambiguities: int = 50
    missed: int = 100


LIMITS = Limits()
KEPT = Kept()
SHOWN = Shown()
