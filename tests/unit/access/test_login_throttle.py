"""How attempts are counted: a name however it is typed, an address by the network that one customer gets."""

from mailwarden.access.rate_limits import address_subject, name_subject


def test_a_name_is_normalised_and_not_stored() -> None:
    assert name_subject(" Ada ") == name_subject("ada")
    assert name_subject("ada") != name_subject("eve")
    assert "ada" not in name_subject("ada")
    assert name_subject("\udcff")


def test_addresses_of_one_customer_are_one() -> None:
    assert address_subject("192.0.2.1") == "address:192.0.2.1"
    assert address_subject("::ffff:192.0.2.1") == "address:192.0.2.1"
    assert address_subject("2001:db8::1") == address_subject("2001:db8::ffff:1") == "address:2001:db8::/64"
    assert address_subject(None) == address_subject("nonsense") == "address:unknown"
