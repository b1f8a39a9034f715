"""Makes the deployment's own certificate authority and the certificates of abby and guard."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mailwarden.errors import CommandError
from mailwarden.serving.tls import ABBY_NAME

AUTHORITY_DAYS = 3650
LEAF_DAYS = 825
CERTIFICATE, KEY = "ca.crt", "ca.key"
# The usage of each certificate. abby listens and calls guards, which check its name; guard only listens.
PROGRAMS = {
    "abby": ((ABBY_NAME,), (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)),
    "guard": ((), (ExtendedKeyUsageOID.SERVER_AUTH,)),
}


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that can still sign."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(folder: Path, names: Sequence[str], ca_folder: Path | None = None) -> None:
    """Write ca.crt and the certificates of abby and guard for these host names and addresses into the folder.

    The CA's key is in `ca_folder`, or in the same folder; an existing CA is kept and signs.
    """
    ca_folder = ca_folder or folder
    for each in (folder, ca_folder):
        each.mkdir(parents=True, exist_ok=True)
    exists = any((ca_folder / name).exists() for name in (CERTIFICATE, KEY))
    authority = _read_authority(ca_folder) if exists else _make_authority(ca_folder)
    if ca_folder != folder:
        _write(folder / CERTIFICATE, _pem(authority.certificate), 0o644)
    for program in PROGRAMS:
        _make_leaf(folder, program, names, authority)


def _make_authority(folder: Path) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name("Mailwarden authority")
    certificate = (
        _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    with os.fdopen(os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(_pem_key(key))
    _write(folder / CERTIFICATE, _pem(certificate), 0o644)
    return Authority(certificate, key)


def renew_certificates(folder: Path, names: Sequence[str], ca_folder: Path | None = None) -> None:
    """Renew the certificates of abby and guard, for their current names and those given."""
    authority = _read_authority(ca_folder or folder)
    try:
        trusted = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        known = {program: _names_in(folder / f"{program}.crt") for program in PROGRAMS}
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise CommandError(f"{folder} has no certificates that `mailwarden init` made: {error}") from None
    if trusted != authority.certificate:
        raise CommandError(
            f"{folder / CERTIFICATE} is not the authority in {ca_folder}: processes would not trust each other. "
            "Nothing was changed."
        )
    for program, its in known.items():
        _make_leaf(folder, program, list(dict.fromkeys((*its, *names))), authority)


def _read_authority(folder: Path) -> Authority:
    try:
        certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(
            f"{folder} has no authority that `mailwarden init` made: {error}. If it is kept elsewhere: --ca-folder."
        ) from None
    if certificate.public_key() != key.public_key():
        raise CommandError(f"{folder / KEY} is not the key of {folder / CERTIFICATE}.")
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CommandError(f"The authority in {folder} is not one that `mailwarden init` made.")
    if certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=LEAF_DAYS):
        raise CommandError(
            f"The authority in {folder} ends on {certificate.not_valid_after_utc:%Y-%m-%d}, before a new certificate "
            "would. Make another in a new folder, and put its `tls` in the place of this one on every host."
        )
    return Authority(certificate, key)


def _names_in(path: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _make_leaf(folder: Path, program: str, names: Sequence[str], authority: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    own_names, usages = PROGRAMS[program]
    alternatives = [_alternative(name) for name in dict.fromkeys((*own_names, *names))]
    certificate = (
        _builder(_name(program), authority.certificate.subject, key.public_key(), LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    _write(folder / f"{program}.crt", _pem(certificate), 0o644)
    _write(folder / f"{program}.key", _pem_key(key), 0o600)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically: a reader gets the old or the new file, never a part."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    beside.replace(path)
