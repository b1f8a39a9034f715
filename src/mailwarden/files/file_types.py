"""Recognises the type of a file by name and content, and bodies among the parts.

Our own table of signatures knows nearly all files in mail. libmagic is slow; it runs only if the name promises a type
and the table does not know the content.

Security: looks at hostile bytes; every search is bounded, and it never raises. libmagic gets the first 4 KiB, and only
inside a killable worker.
"""

from functools import cache

import magic

from mailwarden.message.file_names import ending_of, plain_name
from mailwarden.message.message import Part

HEAD = 4_096

# Kinds, not media types: a kind is how a file behaves when it is opened.
PROGRAM = "program"
SCRIPT = "script"
SHORTCUT = "shortcut"
DISK_IMAGE = "disk image"
WEB_PAGE = "web page"
DANGEROUS = frozenset({PROGRAM, SCRIPT, SHORTCUT, DISK_IMAGE})

_SIGNATURES = (
    (b"%PDF-", "pdf"),
    (b"PK\x03\x04", "zip"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF8", "gif"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "ole"),
    (b"{\\rt", "rtf"),
    (b"\x7fELF", PROGRAM),
    (b"\xfe\xed\xfa\xce", PROGRAM),
    (b"\xfe\xed\xfa\xcf", PROGRAM),
    (b"\xce\xfa\xed\xfe", PROGRAM),
    (b"\xcf\xfa\xed\xfe", PROGRAM),
    (b"\xca\xfe\xba\xbe", PROGRAM),  # Java classes and Mach-O for several processors
    (b"L\x00\x00\x00\x01\x14\x02\x00", SHORTCUT),
    (b"Rar!", "rar"),
    (b"7z\xbc\xaf'\x1c", "7z"),
    (b"\x1f\x8b", "gzip"),
    (b"BM", "bmp"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"OggS", "ogg"),
    (b"ID3", "mp3"),
    (b"MSCF", "cab"),
    (b"conectix", DISK_IMAGE),
    (b"vhdxfile", DISK_IMAGE),
    (b"MSWIM\x00", DISK_IMAGE),
    (b"ITSF", SCRIPT),  # compiled help
    (b"dex\n0", PROGRAM),
)
_PAGE_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<svg")

# Which kinds a name's ending promises. An ending that is not here promises nothing.
_PROMISES = {
    "pdf": {"pdf"}, "jpg": {"jpeg"}, "jpeg": {"jpeg"}, "png": {"png"}, "gif": {"gif"}, "bmp": {"bmp"},
    "tif": {"tiff"}, "tiff": {"tiff"}, "docx": {"zip", "ole"}, "xlsx": {"zip", "ole"}, "pptx": {"zip", "ole"},
    "doc": {"ole", "rtf", "zip", "web page"}, "xls": {"ole", "zip", "web page"}, "ppt": {"ole", "zip"},
    "rtf": {"rtf", "ole"}, "zip": {"zip"}, "rar": {"rar"}, "7z": {"7z"}, "gz": {"gzip"}, "mp3": {"mp3"},
}  # fmt: skip
_PICTURES = frozenset({"jpeg", "png", "gif", "bmp", "tiff", "webp", "heic"})
_PICTURE_BRANDS = frozenset({b"heic", b"heix", b"mif1", b"avif"})
_PROGRAM_WORDS = ("dosexec", "portable-executable", "x-executable", "x-pie", "x-sharedlib", "mach-binary")

_ENDINGS = {
    PROGRAM: "exe ex_ scr com pif cpl msi msp mst msix msixbundle dll sys ocx drv jar apk app deb rpm appx appxbundle "
    "pkg mpkg xpi appref-ms vsto xll gadget appinstaller application diagcab diagpkg xbap wll msu ade adp mda mde "
    "accde shs",
    SCRIPT: "js jse mjs vb vbs vbe wsf wsh wsc hta bat cmd ps1 psm1 psc1 sct shb reg inf ins isp chm msc scf jnlp iqy "
    "slk settingcontent-ms ppkg vxd nsh ps1xml ps2 ps2xml psc2 psd1 pssc cdxml msh msh1 msh2 mshxml ws hlp pyw pyz "
    "vsmacros vsw webpnp printerexport xnk mcf osd fxp pcd plg hpj command workflow scpt applescript oqy rqy dqy rdp "
    "au3 a3x ahk terminal mobileconfig",
    SHORTCUT: "lnk url webloc inetloc fileloc desktop website search-ms searchconnector-ms library-ms theme themepack "
    "deskthemepack",
    DISK_IMAGE: "iso img vhd vhdx udf dmg vmdk wim daa nrg",
}
# Types that people do not send to each other, and that attackers do.
_ATTACKS = (
    "scr pif cpl xll gadget appinstaller application diagcab diagpkg jse vbe wsf wsh wsc hta sct shb scf chm msc jnlp "
    "iqy slk settingcontent-ms ppkg lnk website search-ms searchconnector-ms library-ms theme themepack deskthemepack "
    "vhd vhdx shs xbap wll ps1xml ps2 psc2 ws xnk vsmacros webpnp oqy rqy dqy rdp inetloc fileloc a3x terminal "
    "appref-ms vsto"
)
_ATTACK_ENDINGS = frozenset(_ATTACKS.split())
# Archives that no program of today makes; they are chosen because scanners do not open them.
_ARCHAIC = frozenset({"ace", "arj", "lzh", "lha", "alz", "egg", "zoo", "compress", "xxe"})
# The kind of a file without an ending, by its declared media type.
_DECLARED = {
    "application/hta": SCRIPT, "application/javascript": SCRIPT, "application/x-javascript": SCRIPT,
    "text/javascript": SCRIPT, "text/ecmascript": SCRIPT, "text/vbscript": SCRIPT, "application/ecmascript": SCRIPT,
    "application/x-bat": SCRIPT, "application/x-vbs": SCRIPT, "application/x-powershell": SCRIPT,
    "application/x-msdownload": PROGRAM, "application/x-msdos-program": PROGRAM, "application/x-msi": PROGRAM,
    "application/x-ms-installer": PROGRAM, "application/java-archive": PROGRAM,
    "application/vnd.android.package-archive": PROGRAM, "application/x-ms-shortcut": SHORTCUT,
    "application/x-iso9660-image": DISK_IMAGE,
}  # fmt: skip
_KIND_OF_ENDING = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings.split()}
_HARMLESS = frozenset(_PROMISES) | {"txt", "csv", "htm", "html", "mp4", "xml"}
_OFFICE_ENDINGS = frozenset({"doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp", "dotx", "xltx", "ppsx"})
_ARCHIVE_ENDINGS = frozenset({"zip", "rar", "7z", "gz", "tgz", "tar", "bz2", "xz", "jar", "cab", "arj", "ace", "lzh"})
_MACRO_ENDINGS = frozenset({"docm", "dotm", "xlsm", "xltm", "xlam", "xlsb", "pptm", "potm", "ppam", "ppsm"})

_BODIES = frozenset({"text/plain", "text/html"})


def kind_by_type(name: str, media_type: str) -> str:
    """Return the dangerous kind that a file without an ending is declared as, or ""."""
    return "" if ending_of(name) else _DECLARED.get(media_type, "")


def kind_by_name(name: str) -> str:
    """Return how a file behaves by its name: one of the dangerous kinds, or ""."""
    return _KIND_OF_ENDING.get(ending_of(name), "")


def is_attack_type(name: str) -> bool:
    """Return whether almost only attackers send this type by mail."""
    return ending_of(name) in _ATTACK_ENDINGS


def is_archaic(name: str, archive: str = "") -> bool:
    """Return whether this is an archive of an obsolete format, by its name or its content."""
    return ending_of(name) in _ARCHAIC or archive in _ARCHAIC


def is_web_address(name: str) -> bool:
    """Return whether this is a shortcut to a web page; only its target makes it dangerous."""
    return ending_of(name) in {"url", "webloc"}


def has_double_ending(name: str) -> bool:
    """Return whether a dangerous ending hides behind a harmless one, as in `invoice.pdf.exe`."""
    stem = plain_name(name).rpartition(".")[0]
    return bool(kind_by_name(name)) and ending_of(stem) in _HARMLESS


def promises_kind(name: str) -> bool:
    return ending_of(name) in _PROMISES


def is_office_name(name: str) -> bool:
    return ending_of(name) in _OFFICE_ENDINGS or promises_macros(name)


def is_archive_name(name: str) -> bool:
    return ending_of(name) in _ARCHIVE_ENDINGS


def promises_macros(name: str) -> bool:
    return ending_of(name) in _MACRO_ENDINGS


def kind_by_content(head: bytes) -> str:
    """Return the kind by the first bytes, or "" if our own table does not know them."""
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if head.startswith(b"MZ") and len(head) > 64:
        return PROGRAM
    if head[:4] == b"RIFF":
        return "webp" if head[8:12] == b"WEBP" else "media"
    if head[4:8] == b"ftyp":
        return "heic" if head[8:12] in _PICTURE_BRANDS else "media"
    if b"%PDF-" in head[:1_024]:  # not inspection: readers look for the mark so far
        return "pdf"
    start = head[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()  # not inspection: the beginning decides the type
    if start.startswith((b"<?xml", b"<!--", b"<!doctype svg")):  # prolog of an SVG or HTML page
        start = head[:HEAD].lower()  # not inspection: the beginning decides the type
        return WEB_PAGE if b"<svg" in start or b"<html" in start else ""
    return WEB_PAGE if start.startswith(_PAGE_STARTS) else ""


def ask_libmagic(head: bytes) -> str:
    """Return the kind that libmagic sees, or its media type where we have no word for it."""
    seen = str(_libmagic().from_buffer(head[:HEAD]))  # not inspection: the beginning decides the type
    if any(word in seen for word in _PROGRAM_WORDS):
        return PROGRAM
    if seen in {"application/octet-stream", "application/x-empty"}:  # which is to say that it does not know
        return ""
    return WEB_PAGE if seen == "text/html" else seen


def keeps_promise(name: str, kind: str) -> bool:
    """Return whether content is what the name says; an image with the name of another image format counts as right."""
    promised = _PROMISES.get(ending_of(name))
    return not promised or not kind or kind in promised or bool(kind in _PICTURES and promised & _PICTURES)


@cache
def _libmagic() -> magic.Magic:
    return magic.Magic(mime=True)


def is_body(part: Part) -> bool:
    """Return whether clients show a part as the text of the message, not as a file."""
    return is_shown(part) and kind_by_content(part.content[:HEAD]) in {"", WEB_PAGE}  # not inspection: by its beginning


def is_shown(part: Part) -> bool:
    """Return whether a part is declared as text without a name."""
    return part.media_type in _BODIES and not part.name and part.disposition != "attachment"
