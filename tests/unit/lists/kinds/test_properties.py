"""What holds for every entry of every kind, whatever is written."""

import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.kinds import KINDS
from mailwarden.lists.kinds.attachments import candidates_for_attachment
from mailwarden.lists.kinds.domains import candidates_for_domain
from mailwarden.lists.kinds.hashes import candidates_for_hashes
from mailwarden.lists.kinds.networks import PrefixLengths, candidates_for_ip
from mailwarden.lists.kinds.people import candidates_for_name
from mailwarden.lists.kinds.senders import (
    candidates_for_address,
    candidates_for_recipient,
    candidates_for_sender_domain,
)
from mailwarden.lists.kinds.subjects import SubjectMatcher
from mailwarden.lists.kinds.urls import candidates_for_url, fold_url
from tests.properties import examples

ALL_LENGTHS = PrefixLengths(tuple(range(32, -1, -1)), tuple(range(128, -1, -1)))
SIGNS = "aZ0é\u0301İßσΣ\u0345Ⅷ﹒。＠.@*/\\:?#%[](){}<>\"'-_ ~;,=+&$!^|\u200b\u00a0\n\x00\ud800❤"
WORDS = ["http://", "hxxps://", "[.]", "(dot)", "[@]", "[:]", "*.", "/*", "example", ".com", "xn--", "%2e", "%2A", "::",
         "ffff:", "/24", "192.0.2.1", "2001:db8::", "sha256:", "mailto:", "/i", ".exe", " <", ">", "0x7f"]  # fmt: skip
ANYTHING = st.one_of(
    st.text(max_size=40),
    st.text(SIGNS, max_size=30),
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(SIGNS, max_size=3)), max_size=10).map("".join),
)
KIND = st.sampled_from(sorted(KINDS))

LABEL = st.from_regex(r"[a-z0-9_]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True).filter(lambda label: label[2:4] != "--")
WORD = st.sampled_from(["bücher", "日本", "straße", "δοκιμή"])
DOMAIN = st.builds(
    lambda labels: ".".join([*labels, "example"]), st.lists(st.one_of(LABEL, WORD), min_size=1, max_size=4)
)
LOCAL = st.from_regex(r"[a-zé0-9!#$%&'+/=?^_`{|}~.-]{1,12}", fullmatch=True)
STEP = st.from_regex(r"[A-Za-z0-9_~!$&'()+,;=:@%é-]{1,6}", fullmatch=True)
PATH = st.lists(STEP, max_size=4).map("/".join)


def normalised(kind, text):
    try:
        return KINDS[kind].normalise(text)
    except (InvalidEntry, EntryTooBroad):
        return None


@examples(400)
@given(KIND, ANYTHING)
@example("person", 'e"\u0301 <a@b.example>')
@example("subject", "\u0345\u0301Σ")
@example("url", "a.example/[[.]]")
@example("url", "hxxp://a[.]example/((.))")
def test_anything_is_normalised_or_refused_and_normalising_again_changes_nothing(kind, text):
    entry = normalised(kind, text)
    if entry is not None:
        assert KINDS[kind].normalise(entry) == entry == KINDS[kind].spell(text)
        assert 0 < len(entry) <= 2_000
        assert isinstance(KINDS[kind].specificity(entry), int)
        assert KINDS[kind].key(entry)


@examples(300)
@given(ANYTHING)
def test_values_of_a_message_never_raise(text):
    candidates_for_address(text)
    candidates_for_sender_domain(text)
    candidates_for_recipient(text)
    candidates_for_ip(text, ALL_LENGTHS)
    candidates_for_url(text)
    candidates_for_url("http://" + text)
    candidates_for_attachment(text, text, [text])
    candidates_for_name(text)
    candidates_for_domain(text)
    SubjectMatcher(["abc", "/a.c/i"]).find(text)


@examples(300)
@given(
    st.lists(
        st.sampled_from(["a", "B", ".", "..", "/", "?", "#", "-", ":80", ":8080", "%41", "*", "(", "\u00e9"]),
        max_size=10,
    )
)
def test_a_plain_link_is_read_as_the_same_link_in_disguise(pieces):
    rest = "".join(pieces)
    assert fold_url("https://x.example" + rest) == fold_url("HTTPS:\\\\x.example" + rest)


def respelled(draw, text, *, dots=True):
    """Write a text as people and feeds do."""
    if draw(st.booleans()):
        text = "".join(sign.upper() if sign not in "ßı" and draw(st.booleans()) else sign for sign in text)
    if dots and draw(st.booleans()):
        text = text.replace(".", draw(st.sampled_from(["[.]", "(.)", "[dot]", "{.}"])))
        text = text.replace("@", draw(st.sampled_from(["[@]", "(at)", "@"])))
    return draw(st.sampled_from(["", " ", "\t", "\ufeff"])) + text + draw(st.sampled_from(["", " ", "\r\n"]))


def assert_ordered(kind, keys):
    found = [KINDS[kind].specificity(key) for key in keys]
    assert found == sorted(found, reverse=True)


@pytest.mark.slow
@examples(150)
@given(st.data(), DOMAIN, LOCAL)
def test_a_stored_sender_is_found_and_deleted_in_any_spelling(data, domain, local):
    sender = KINDS["sender"]
    value = f"{local}@{domain}"
    keys = candidates_for_address(value)
    assert_ordered("sender", keys)
    forms = [domain, value] if "{" not in local else [domain]
    below, _, rest = domain.partition(".")
    if below and "." in rest:
        forms.append("*." + rest)
    for form in forms:
        stored = sender.normalise(form)
        assert stored in keys
        assert sender.spell(respelled(data.draw, form)) == stored


@examples(150)
@given(st.data(), DOMAIN, PATH, st.sampled_from(["", ":8080"]), st.sampled_from(["", "a=1&b", "x=%zz"]))
def test_a_stored_url_is_found_and_deleted_in_any_spelling(data, domain, path, port, query):
    url = KINDS["url"]
    value = f"https://{domain}{port}/{path}" + (f"?{query}" if query else "")
    keys = candidates_for_url(value)
    assert_ordered("url", keys)
    assert len(keys) == len(set(keys))
    site = respelled(data.draw, domain).strip("\ufeff \t\r\n")
    for form, written in [
        (domain, f"hxxp://{site}/"),
        (domain + port, f"//{site}{port}"),
        (f"{domain}/{path}", f"ftp://u:p@{domain.upper() if domain.isascii() else domain}/{path}#top"),
        (f"{domain}{port}/{path}/*", f" {domain}{port}//{path}/./*"),
        (value, value),
    ]:
        stored = url.normalise(form)
        assert stored in keys
        assert url.spell(written) == stored
        assert stored in candidates_for_url("http://" + stored.removesuffix("/*"))


@examples(150)
@given(st.ip_addresses(), st.integers(0, 128))
def test_a_stored_network_is_found_from_every_address_in_it(address, length):
    length = min(length, address.max_prefixlen)
    number = int(address) >> (address.max_prefixlen - length) << (address.max_prefixlen - length)
    text = f"{type(address)(number)}/{length}"
    stored = KINDS["ip"].spell(text)
    keys = candidates_for_ip(address.exploded.upper(), ALL_LENGTHS)
    mapped = ":" in stored and "." in keys[0]  # an IPv4-mapped address is IPv4, which no IPv6 network covers
    assert (stored in keys) != mapped
    assert_ordered("ip", keys)
    assert KINDS["ip"].spell(text.replace(".", "[.]").upper()) == stored
    assert mapped or stored in candidates_for_ip(str(address), PrefixLengths.of([stored]))
    breadth = normalised("ip", text) is None
    assert breadth == (KINDS["ip"].specificity(stored) < (19 if ":" in stored else 8))


@examples(100)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Z"]), min_size=1, max_size=8))
def test_a_stored_entry_matches_its_source_text(text):
    if (literal := normalised("subject", text)) and not literal.startswith("/"):
        assert SubjectMatcher([literal]).find(f"Re: {text} ...") == [literal]
    if extension := normalised("attachment", "." + text):
        assert extension in candidates_for_attachment("name." + text, text) or "/" in extension
    if person := normalised("person", f"{text} <a@b.example>"):
        assert KINDS["person"].key(person) in candidates_for_name(text)


@given(st.binary(max_size=20), st.sampled_from(["sha256", "sha1", "md5"]))
@examples(50)
def test_a_stored_hash_is_found_in_any_case(content, name):
    digest = hashlib.new(name, content + b"x").hexdigest()
    assert KINDS["hash"].normalise(f"{name}:{digest.upper()}") in candidates_for_hashes("", "", digest.upper())


@pytest.mark.parametrize("kind", ["recipient", "domain", "domain-or-ip"])
@examples(50)
@given(data=st.data(), domain=DOMAIN)
def test_a_stored_domain_is_found_and_deleted_in_any_spelling(kind, data, domain):
    stored = KINDS[kind].normalise(domain)
    assert KINDS[kind].spell(respelled(data.draw, domain)) == stored
    assert stored in candidates_for_recipient("a@" + domain)
    assert stored in candidates_for_domain(domain)
