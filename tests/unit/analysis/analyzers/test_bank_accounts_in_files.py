"""The bank account of an invoice is found in its PDF file too, with the place of the file."""

from email.message import EmailMessage

from mailwarden.analysis.analyzers.fraud import FraudAnalyzer
from mailwarden.analysis.view import View
from mailwarden.message.parser import parse_message
from mailwarden.model.evidence import Finding


def made_pdf(line: str) -> bytes:
    """Return a document with one line of text."""
    drawn = f"BT /F1 12 Tf 40 700 Td ({line}) Tj ET".encode()
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    body, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 6\n0000000000 65535 f \n"
    return body + head + table + b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % len(body)


def test_an_account_in_a_pdf_file_is_found_at_the_file() -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "kim@northbridge.example", "dana@acme.example", "Invoice"
    message.set_content("The invoice is attached.")
    content = made_pdf("IBAN DE44 5001 0517 5407 3249 31")
    message.add_attachment(content, maintype="application", subtype="pdf", filename="invoice.pdf")
    found = FraudAnalyzer().examine(View(parse_message(message.as_bytes())))
    accounts = [each for each in found if isinstance(each, Finding) and each.name == "fraud.bank-account"]
    assert [(each.facts["account"], each.place.name) for each in accounts] == [
        ("DE44500105175407324931", "invoice.pdf")
    ]
