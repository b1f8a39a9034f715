"""A bank account that a correspondent never named before is noticed, and a service with many accounts is not."""

from mailwarden.model.record import MessageSummary
from mailwarden.senders.bank_details import findings_of, relations_to_look_up, relations_to_store
from mailwarden.senders.model import ContactStats
from mailwarden.senders.relations import KNOWN_AGE, relation_of

OWN = "dana@acme-works.example"
TRUE, FALSE, OURS = "DE44500105175407324931", "NL91ABNA0417164300", "NO9386011117947"


def naming(*accounts, sender="kim@northbridge.example", to=OWN, free_mailbox=False):
    summary = MessageSummary(1, "", from_address=sender)
    return relation_of(summary, (to,), free_mailbox=free_mailbox, accounts=accounts)


def memory_of(*relations, age=KNOWN_AGE):
    return {text: ContactStats(1, 1, age) for relation in relations for text in relations_to_store(relation)}


def names(relation, seen, *, imitates=False):
    asked = {text: seen[text] for text in relations_to_look_up(relation) if text in seen}
    found = findings_of(relation, asked, imitates=imitates)
    return {finding.name.removeprefix("relationship.") for finding in found}


def test_another_account_of_a_correspondent_is_noticed():
    seen = memory_of(naming(TRUE))
    assert names(naming(TRUE), seen) == set()
    assert names(naming(FALSE), seen) == {"new-bank-account"}
    assert names(naming(TRUE, FALSE, sender="sales@northbridge.example"), seen) == {"new-bank-account"}


def test_the_first_account_of_a_correspondent_is_no_change():
    assert names(naming(FALSE), {}) == set()
    assert names(naming(FALSE, sender="eve@stranger.example"), memory_of(naming(TRUE))) == set()


def test_an_account_of_a_few_days_is_not_known_yet():
    """An account that came in a message judged good by mistake does not excuse the next message."""
    seen = memory_of(naming(TRUE)) | memory_of(naming(FALSE), age=KNOWN_AGE - 1)
    assert names(naming(FALSE), seen) == {"new-bank-account"}
    assert names(naming(FALSE), memory_of(naming(TRUE, FALSE))) == set()


def test_people_at_one_provider_of_mailboxes_have_accounts_of_their_own():
    seen = memory_of(naming(TRUE, sender="kim@mailbox.example", free_mailbox=True))
    assert names(naming(FALSE, sender="kim@mailbox.example", free_mailbox=True), seen) == {"new-bank-account"}
    assert names(naming(FALSE, sender="eve@mailbox.example", free_mailbox=True), seen) == set()


def test_an_imitator_brings_an_account_that_is_new_to_the_tenant():
    seen = memory_of(naming(TRUE))
    imitator = "kim@northbrldge.example"
    assert names(naming(FALSE, sender=imitator), seen, imitates=True) == {"impersonation-bank-account"}
    assert names(naming(TRUE, sender=imitator), seen, imitates=True) == set()
    assert names(naming(FALSE, sender=imitator), seen) == set()


def test_a_quoted_account_of_the_tenant_is_no_change():
    ours = naming(OURS, sender=OWN, to="kim@northbridge.example")
    seen = memory_of(naming(TRUE)) | memory_of(ours, age=0)
    assert names(naming(OURS), seen) == set()
    assert names(naming(OURS, FALSE), seen) == {"new-bank-account"}


def test_colleagues_are_not_compared():
    assert names(naming(FALSE, sender="kim@acme-works.example"), memory_of(naming(TRUE, sender=OWN))) == set()


def test_a_service_that_invoices_for_many_is_not_noticed():
    many = [naming(f"US:021000021:{number}") for number in range(40)]
    assert names(naming(FALSE), memory_of(*many)) == set()
