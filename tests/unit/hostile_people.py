"""Keys, names and lists of people that must all be refused: hand-picked and generated, each called by what it tries."""

from __future__ import annotations

import base64
import hashlib
import string

KINDS = ("ssh-ed25519", "sk-ssh-ed25519@openssh.com", "ecdsa-sha2-nistp256", "ssh-rsa")


def field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def line(kind: str, *fields: bytes, inside: str | None = None, more: bytes = b"") -> str:
    """A public key line of these fields; `inside` is the type that the body says, `more` comes behind."""
    blob = field((inside or kind).encode()) + b"".join(map(field, fields)) + more
    return f"{kind} {base64.b64encode(blob).decode()}"


def ed25519(number: int = 1) -> str:
    """A sound key, another for each number."""
    return line("ssh-ed25519", hashlib.sha256(str(number).encode()).digest()[:31] + b"\x01")


def mpint(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


def rsa(bits: int, exponent: int = 65537) -> str:
    return line("ssh-rsa", mpint(exponent), mpint((1 << (bits - 1)) + 1))


POINT = b"\x04" + bytes(range(1, 65))
GOOD = {
    "ed25519": ed25519(),
    "with a comment": f"{ed25519(2)} José's laptop",
    "with tabs and ends of lines around": f"\t{ed25519(3)}\tme \r\n",
    "on a security key": line("sk-ssh-ed25519@openssh.com", b"\x05" * 32, b"ssh:"),
    "on a security key with a name": line("sk-ssh-ed25519@openssh.com", b"\x05" * 32, b"ssh:evening"),
    "ecdsa": line("ecdsa-sha2-nistp256", b"nistp256", POINT),
    "rsa of 3072 bits": rsa(3072),
    "rsa of 4096 bits": rsa(4096),
}

OPENSSH_PRIVATE = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"
    "-----END OPENSSH PRIVATE KEY-----\n"
)
PRIVATE = {
    "openssh": OPENSSH_PRIVATE,
    "openssh in one line": OPENSSH_PRIVATE.replace("\n", " "),
    "openssh without its frame": OPENSSH_PRIVATE.splitlines()[1],
    "the frame in small letters": OPENSSH_PRIVATE.lower(),
    "a public key and then a private one": f"{ed25519()}\n{OPENSSH_PRIVATE}",
    "a private key in the comment": f"{ed25519()} {OPENSSH_PRIVATE.splitlines()[1]}",
    "rsa": "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    "ec": "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEI\n-----END EC PRIVATE KEY-----",
    "dsa": "-----BEGIN DSA PRIVATE KEY-----\nMIIBugIBAAKB\n-----END DSA PRIVATE KEY-----",
    "pkcs8": "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n-----END PRIVATE KEY-----",
    "encrypted": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIFHDBOBg\n-----END ENCRYPTED PRIVATE KEY-----",
    "of PuTTY": "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: me\nPublic-Lines: 2\nAAAA\n",
    "a part of PuTTY's": "Private-Lines: 1\nAAAAIF0\nPrivate-MAC: 00",
}

_BODY = ed25519().split(" ")[1]
_CERTIFICATES = [
    f"{kind}-cert-v01@openssh.com" for kind in ("ssh-ed25519", "ssh-rsa", "ssh-dss", "ecdsa-sha2-nistp256")
]
KEYS = {
    "nothing": "",
    "space": " \t\r\n",
    "a word": "key",
    "the type alone": "ssh-ed25519",
    "the body alone": _BODY,
    "the type twice": f"ssh-ed25519 ssh-ed25519 {_BODY}",
    "the type in capitals": f"SSH-ED25519 {_BODY}",
    "a fingerprint": "SHA256:8ficQMnD48L8D+fsyadT6QOWBuZJeNDKi+VVyLrWi2I",
    "a file's name": "~/.ssh/id_ed25519.pub",
    "a command": "$(cat /etc/passwd)",
    "an option of a program": "--help",
    "options: a command": f'command="rm -rf ~" {ed25519()}',
    "options: no pty": f"no-pty {ed25519()}",
    "options: from": f'from="*",restrict {ed25519()}',
    "options: an authority": f"cert-authority {ed25519()}",
    "options: an environment": f'environment="LD_PRELOAD=/tmp/x.so" {ed25519()}',
    "a line of known_hosts": f"github.com {ed25519()}",
    "a line of the metadata": f"root:{ed25519()}",
    "two keys by newline": f"{ed25519()}\n{ed25519(2)}",
    "two keys by carriage return": f"{ed25519()}\r{ed25519(2)}",
    "two keys by both": f"{ed25519()}\r\n{ed25519(2)}\r\n",
    "two keys in one line": f"{ed25519()} {ed25519(2)}",
    "two bodies": f"{ed25519()} {_BODY}",
    "an option in the second line": f'{ed25519()}\ncommand="sh" {ed25519(2)}',
    "a comment line first": f"# me\n{ed25519()}",
    "another type inside": line("ssh-ed25519", b"\x01" * 32, inside="ssh-rsa"),
    "rsa that is ed25519": line("ssh-rsa", b"\x01" * 32, inside="ssh-ed25519"),
    "a security key that is none": line("sk-ssh-ed25519@openssh.com", b"\x05" * 32, inside="ssh-ed25519"),
    "a type with a NUL inside": line("ssh-ed25519", b"\x01" * 32, inside="ssh-ed25519\0"),
    "no field": line("ssh-ed25519"),
    "a point too short": line("ssh-ed25519", b"\x01" * 31),
    "a point too long": line("ssh-ed25519", b"\x01" * 33),
    "an empty point": line("ssh-ed25519", b""),
    "trailing bytes": line("ssh-ed25519", b"\x01" * 32, more=b"x"),
    "a trailing field": line("ssh-ed25519", b"\x01" * 32, b"more"),
    "a field that is longer than the key": line("ssh-ed25519", more=b"\x00\x00\xff\xff" + b"x" * 32),
    "a field of four gigabytes": line("ssh-ed25519", more=b"\xff\xff\xff\xff" + b"x" * 32),
    "base64 with spaces": f"ssh-ed25519 {_BODY[:20]} {_BODY[20:]}",
    "base64 without its end": f"ssh-ed25519 {_BODY[:-1]}",
    "base64 with too much padding": f"ssh-ed25519 {_BODY}=",
    "base64 for addresses": line("ssh-ed25519", b"\xff" * 31 + b"\x01").replace("/", "_").replace("+", "-"),
    "base64 in wide letters": "ssh-ed25519 " + "".join(chr(ord(c) + 0xFEE0) for c in _BODY),
    "a hidden bit in the base64": line("sk-ssh-ed25519@openssh.com", b"\x05" * 32, b"ssh:").replace("o=", "p="),
    "a security key without its application": line("sk-ssh-ed25519@openssh.com", b"\x05" * 32),
    "a security key for something else": line("sk-ssh-ed25519@openssh.com", b"\x05" * 32, b"https://example.org"),
    "a security key with a newline in it": line("sk-ssh-ed25519@openssh.com", b"\x05" * 32, b"ssh:\nx"),
    "a security key of the other kind": line("sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", POINT, b"ssh:"),
    "dsa": line("ssh-dss", b"\x01" * 128, b"\x01" * 20, b"\x01" * 128, b"\x01" * 128),
    "rsa with an even exponent": rsa(3072, 65536),
    "rsa with the exponent 1": rsa(3072, 1),
    "rsa with an even modulus": line("ssh-rsa", mpint(65537), mpint(1 << 3071)),
    "rsa below zero": line("ssh-rsa", mpint(65537), b"\xff" * 384),
    "rsa with zeros in front": line("ssh-rsa", mpint(65537), b"\0\0" + mpint((1 << 3071) + 1)),
    "rsa with one number": line("ssh-rsa", mpint((1 << 3071) + 1)),
    "rsa with three numbers": line("ssh-rsa", mpint(65537), mpint((1 << 3071) + 1), b"\x01"),
    "rsa that is too long": rsa(16400),
    "ecdsa 384": line("ecdsa-sha2-nistp384", b"nistp384", b"\x04" + b"\x01" * 96),
    "ecdsa 521": line("ecdsa-sha2-nistp521", b"nistp521", b"\x04" + b"\x01" * 132),
    "ecdsa of another curve": line("ecdsa-sha2-nistp256", b"nistp384", POINT),
    "ecdsa compressed": line("ecdsa-sha2-nistp256", b"nistp256", b"\x02" + POINT[1:33]),
    "ecdsa at infinity": line("ecdsa-sha2-nistp256", b"nistp256", b"\0"),
    "a type of tomorrow": "ssh-mldsa65@openssh.com AAAA",
    "x509": "x509v3-ssh-rsa AAAA",
    "a public key as PEM": "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----",
    "a public key as RFC 4716": f"---- BEGIN SSH2 PUBLIC KEY ----\n{_BODY}\n---- END SSH2 PUBLIC KEY ----",
    "a public key of gpg": "-----BEGIN PGP PUBLIC KEY BLOCK-----\nmDMEX\n-----END PGP PUBLIC KEY BLOCK-----",
    "a certificate as PEM": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "of signify": "untrusted comment: signify public key\nRWQ",
    "html": f"<script>alert(1)</script> {ed25519()}",
    "100 kB": "ssh-ed25519 " + "A" * 100_000,
    "100 kB of comment": f"{ed25519()} " + "x" * 100_000,
    "100 kB of spaces": f"ssh-ed25519{' ' * 100_000}{_BODY}",
    "surrogates": f"{ed25519()} \ud800",
    **{f"a certificate {kind}": f"{kind} AAAA" for kind in _CERTIFICATES},
    **{f"rsa of {bits} bits": rsa(bits) for bits in (512, 768, 1023, 1024, 2047, 2048, 3071)},
    **{f"a private key: {name}": text for name, text in PRIVATE.items()},
}
_UNSEEN = {
    "NUL": "\0",
    "ESC": "\x1b[2J",
    "bell": "\a",
    "DEL": "\x7f",
    "C1": "\x9b",
    "bidi": "\u202e",
    "isolate": "\u2066",
}
_UNSEEN |= {"no width": "\u200b", "byte order mark": "\ufeff", "line separator": "\u2028", "no break": "\u00a0"}
for _name, _character in _UNSEEN.items():
    KEYS[f"{_name} in the comment"] = f"{ed25519()} me{_character}"
    KEYS[f"{_name} in the body"] = f"ssh-ed25519 {_BODY[:30]}{_character}{_BODY[30:]}"
    KEYS[f"{_name} in front"] = f"{_character}{ed25519()}"
for _text in (
    "00" * 32,
    "01" + "00" * 31,
    "ec" + "ff" * 30 + "7f",
    "01" + "00" * 30 + "80",
    "ed" + "ff" * 30 + "7f",
    "ff" * 32,
):
    KEYS[f"a point that any signature fits: {_text[:4]}…{_text[-4:]}"] = line("ssh-ed25519", bytes.fromhex(_text))
for _text in (
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
):
    KEYS[f"a point of order eight: {_text[:4]}"] = line("ssh-ed25519", bytes.fromhex(_text))
    KEYS[f"the same on a security key: {_text[:4]}"] = line("sk-ssh-ed25519@openssh.com", bytes.fromhex(_text), b"ssh:")

# Sound keys, cut and changed at many places: whatever comes of it is no key, or not of the type in front.
_SOUND = {name: text.split()[:2] for name, text in GOOD.items()}
for _index in range(40):
    _name, (_kind, _text) = list(_SOUND.items())[_index % len(_SOUND)]
    _cut = 8 + (_index * 7919) % (len(_text) - 9)
    KEYS[f"cut {_index}: {_name} at {_cut}"] = f"{_kind} {_text[:_cut]}"
for _index in range(40):
    _name, (_kind, _text) = list(_SOUND.items())[_index % len(_SOUND)]
    _at = _index // 2  # in the lengths or the type
    _other = next(letter for letter in string.ascii_letters[_index:] if letter != _text[_at])
    KEYS[f"changed {_index}: {_name} at {_at}"] = f"{_kind} {_text[:_at]}{_other}{_text[_at + 1 :]}"

NAMES = {
    **{
        f"of the system: {name}": name
        for name in ("root", "daemon", "bin", "nobody", "ubuntu", "www-data", "_apt", "sshd")
    },
    **{
        f"of the system as well: {name}": name
        for name in ("systemd-network", "systemd-resolve", "messagebus", "syslog")
    },
    **{
        f"a group: {name}": name
        for name in ("sudo", "docker", "adm", "wheel", "lxd", "admin", "disk", "shadow", "tpufleet")
    },
    **{f"Google's: {name}": name for name in ("google-sudoers", "google", "google_guest")},
    **{f"like root: {name}": name for name in ("r00t", "ro0t", "root-", "root_", "_root", "__root__", "r0ot-")},
    **{
        f"like others: {name}": name
        for name in ("d0cker", "b1n", "5shd", "adm1n", "www_data", "0perator", "5udo", "ubuntu_")
    },
    **{
        f"another alphabet: {name}": name
        for name in ("аda", "adа", "ο", "ｒoot", "ada²", "ádá", "ß", "ı", "ⅰda", "𝐚da")
    },
    **{
        f"a shell acts on it: {name}": f"ada{name}"
        for name in (";ls", "$(x)", "`x`", "|x", "&", ">x", "*", "?", "'", '"', "\\", "~", "!")
    },
    **{f"unseen: {name}": f"ada{text}" for name, text in _UNSEEN.items()},
    "nothing": "",
    "a space": "ada l",
    "space around": " ada",
    "a newline": "ada\n",
    "a tab": "ada\tl",
    "a leading dash": "-x",
    "an option": "--gid=0",
    "a dot": ".",
    "two dots": "..",
    "up": "../ada",
    "a path": "ada/grace",
    "a colon, as in passwd": "ada:x:0:0",
    "a comma": "ada,grace",
    "an equals sign": "ada=1",
    "at": "ada@host",
    "a percent sign": "%s",
    "capitals": "Ada",
    "digits": "1000",
    "a digit first": "1ada",
    "33 letters": "a" * 33,
    "100 kB": "a" * 100_000,
    "markup": "<b>ada</b>",
}

_K, _K2 = ed25519(), ed25519(2)
FILES = {
    "a mapping": f"ada: {_K}\n",
    "a word": "ada\n",
    "a number": "7\n",
    "a list of words": "- ada\n",
    "a list in a list": f"- [ada, {_K}]\n",
    "no key": "- name: ada\n",
    "no name": f"- key: {_K}\n",
    "an unknown key": f"- {{name: ada, key: {_K}, sudo: true}}\n",
    "a misspelt key": f"- {{name: ada, kee: {_K}}}\n",
    "a name twice": f"- {{name: ada, key: {_K}}}\n- {{name: ada, key: {ed25519(2)}}}\n",
    "a key twice": f"- {{name: ada, key: {_K}}}\n- {{name: grace, key: {_K}}}\n",
    "a key twice with another comment": f"- {{name: ada, key: {_K}}}\n- {{name: grace, key: {_K} me}}\n",
    "a look-alike": f"- {{name: kim1, key: {_K}}}\n- {{name: kiml, key: {ed25519(2)}}}\n",
    "a seat twice": f"- {{name: a, key: {_K}, seat: t-0-w0:1}}\n- {{name: b, key: {_K2}, seat: t-0-w0:1}}\n",
    "a chip of a whole host": f"- {{name: a, key: {_K}, seat: t-0-w0}}\n- {{name: b, key: {_K2}, seat: t-0-w0:1}}\n",
    "a seat that is none": f"- {{name: a, key: {_K}, seat: ../../etc}}\n",
    "a chip that no host has": f"- {{name: a, key: {_K}, seat: t-0-w0:16}}\n",
    "the operator": f"- {{name: operator, key: {_K}}}\n",
    "the one who is the operator": f"- {{name: boss, key: {_K}}}\n",
    "a name that is a truth": f"- {{name: no, key: {_K}}}\n",
    "a key that is a number": "- {name: ada, key: 12}\n",
    "a key in two lines": f"- name: ada\n  key: |\n    {_K}\n    {ed25519(2)}\n",
    "a key with an option": f"- name: ada\n  key: 'command=\"sh\" {_K}'\n",
    "a private key": "- name: ada\n  key: |\n    " + OPENSSH_PRIVATE.replace("\n", "\n    ") + "\n",
    "an alias": f"- &a {{name: ada, key: {_K}}}\n- *a\n",
    "a merge": f"- {{name: ada, key: {_K}, <<: {{note: x}}}}\n",
    "a tag": f"- !!python/object/apply:os.system {{name: ada, key: {_K}}}\n",
    "two documents": f"- {{name: ada, key: {_K}}}\n---\n- {{name: b, key: {ed25519(2)}}}\n",
    "a key of YAML twice": f"- {{name: ada, key: {_K}, key: {ed25519(2)}}}\n",
    "a control character": f"- {{name: ada, key: {_K}, note: \x1b[2J}}\n",
    "a control character, escaped": f'- {{name: ada, key: {_K}, note: "\\e[2J"}}\n',
    "a note in two lines": f'- {{name: ada, key: {_K}, note: "a\\nb"}}\n',
    "a long note": f"- {{name: ada, key: {_K}, note: {'x' * 201}}}\n",
    "an end of a day that isn't": f"- {{name: ada, key: {_K}, expires: 2026-02-30}}\n",
    "a length of time": f"- {{name: ada, key: {_K}, expires: 8h}}\n",
    "a time of nowhere": f"- {{name: ada, key: {_K}, expires: 2026-12-01T18:00}}\n",
    "the end of all days": f"- {{name: ada, key: {_K}, expires: 9999-12-31}}\n",
    "the end of all days elsewhere": f'- {{name: ada, key: {_K}, expires: "9999-12-31T23:59-12:00"}}\n',
    "other digits": f"- {{name: ada, key: {_K}, expires: ٢٠٢٦-12-01}}\n",
    "not text": "\udcff\udcfe",
    "1 MiB": "#" * 1_048_577,
    "deep": "[" * 500 + "\n",
}
_CSV = "name,key,expires,seat,note\n"
TABLES = {
    "no headings": f"ada,{_K}\n",
    "a heading twice": f"name,key,key\nada,{_K},{_K}\n",
    "an unknown heading": f"name,key,sudo\nada,{_K},yes\n",
    "no key": _CSV + "ada,,,,\n",
    "no name": _CSV + f",{_K},,,\n",
    "too many cells": _CSV + f"ada,{_K},,,a,b\n",
    "a quote that does not end": _CSV + f'ada,{_K},,,"a\n',
    "text behind a quote": _CSV + f'ada,{_K},,,"a"b\n',
    "a quote within": _CSV + f'ada,{_K},,,a"b\n',
    "a cell over two lines": _CSV + f'ada,"{_K}\n{_K}",,,\n',
    "a name twice": _CSV + f"ada,{_K},,,\nada,{ed25519(2)},,,\n",
    "a key twice": _CSV + f"ada,{_K},,,\ngrace,{_K},,,\n",
    "a system account": _CSV + f"root,{_K},,,\n",
    "a formula": _CSV + f'"=cmd|calc",{_K},,,\n',
    "a NUL": _CSV + f"ada\0,{_K},,,\n",
    "a carriage return within": _CSV + f"ada,{_K}\r{ed25519(2)},,,\n",
    "a time": _CSV + f"ada,{_K},tomorrow,,\n",
    "a seat": _CSV + f"ada,{_K},,tpu,\n",
    "a private key": _CSV + f"ada,{OPENSSH_PRIVATE.splitlines()[1]},,,\n",
    "bidi": _CSV + f"ada,{_K},,,\u202eada\n",
}
