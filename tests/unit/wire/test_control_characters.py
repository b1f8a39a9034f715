"""The `parameters` part: no control character passes into an envelope, at no place."""

import json

import pytest

from mailwarden.errors import MailwardenError
from mailwarden.wire.scanning import read_parameters
from tests.tables import every

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]


@pytest.mark.parametrize("field", ["envelopeFrom", "envelopeRecipients", "remoteAddress", "senderHelo"])
@pytest.mark.parametrize("template", ["{}a@b.example", "a{}@b.example", "a@b.example{}"])
def test_a_control_character_is_refused_wherever_it_stands(field, template):
    def check(control):
        text = template.format(control)
        border = {"envelopeFrom": "a@b.example", "envelopeRecipients": ["c@d.example"]}
        border[field] = [text] if field == "envelopeRecipients" else text
        with pytest.raises(MailwardenError) as caught:
            read_parameters(json.dumps({"borderMtaData": border}).encode())
        assert caught.value.code in ("schema_violation", "invalid_json")

    every(CONTROLS, check, lambda control: f"U+{ord(control):04X}")
