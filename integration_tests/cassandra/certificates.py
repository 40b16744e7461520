"""An authority for one test, and what it has signed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


@dataclass(frozen=True, slots=True)
class Signed:
    """Files in PEM: a certificate, its key, and both together."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs for a server and for clients."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._ca = folder, trustme.CA()
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def sign(self, name: str) -> Signed:
        """A certificate for 127.0.0.1 or for whoever is called so."""
        made = self._ca.issue_cert("127.0.0.1", common_name=name)
        chain = b"".join(pem.bytes() for pem in made.cert_chain_pems)
        raw = load_pem_private_key(made.private_key_pem.bytes(), None)
        key = raw.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # as Java reads it
        signed = Signed(*(self._folder / f"{name}{end}.pem" for end in ("", "-key", "-both")))
        for path, data in ((signed.certificate, chain), (signed.key, key), (signed.both, key + chain)):
            path.write_bytes(data)
        return signed
