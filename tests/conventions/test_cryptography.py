"""Every HKDF, HMAC and AEAD of the product is in the package `crypto`, where ciphertexts get their key ids."""

import ast

import pytest

from tests.conventions.project_files import name_of, parsed, python_files

# The self-tests at start ask the primitives themselves for known answers, and protect nothing with them.
HOMES = ("src/mailwarden/crypto/", "src/mailwarden/telemetry/self_tests.py")
PRIMITIVES = ("hmac", "cryptography.hazmat.primitives.ciphers", "cryptography.hazmat.primitives.kdf")


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.slow
def test_only_crypto_uses_the_primitives() -> None:
    strange = [
        (name_of(file), name)
        for file in python_files("src")
        if not name_of(file).startswith(HOMES)
        for name in sorted(imports(parsed(file)))
        if name.startswith(PRIMITIVES)
    ]
    assert strange == []


def test_no_keyed_hash_stands_elsewhere() -> None:
    strange = [
        name_of(file)
        for file in python_files("src")
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith("blake2")
        and any(keyword.arg == "key" for keyword in node.keywords)
    ]
    assert strange == []
