"""What an enemy, or a failing disk, makes of a file: blind changes of bytes, and changes that know the format."""

from __future__ import annotations

import json
import random
from typing import Any

Random = random.Random

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 8, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, 0.0, -0.0, 0.5, 1.0, 1e308, -1e308, 5e-324,
    "", "x", "0" * 64, "../../etc/passwd", "/dev/zero", "\0", "\x1b[2J", "\ud800", "x" * 5000, [], {}, [[]], [0], [-1],
    [2**31 - 1] * 3, [1] * 70, {"a": {}},
]  # fmt: skip
TOKENS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    "1" * 5000,
    "[" * 3000,
    '{"a":' * 3000,
    "nul",
    '"',
    "1.0.0",
]


def mangled(content: bytes, randomness: Random) -> bytes:
    """A blind change: bits, bytes, pieces cut out, doubled, moved, or the end cut off. Never the same content."""
    for _ in range(100):
        data = bytearray(content)
        a, b = sorted(randomness.randrange(len(content) + 1) for _ in range(2))
        b = min(b, a + randomness.choice((1, 4, 50, 5000)))
        way = randomness.randrange(7)
        if way == 0 and a < len(data):
            data[a] ^= 1 << randomness.randrange(8)
        elif way == 1 and a < len(data):
            data[a] = randomness.choice(b"\0\xff {}[]\"',:-019.en\n\\")
        elif way == 2:
            del data[a:b]
        elif way == 3:
            data[a:a] = data[a:b]
        elif way == 4:
            place = randomness.randrange(len(data) + 1)
            data[place:place] = randomness.randbytes(randomness.choice((1, 3, 8, 100)))
        elif way == 5:
            data = data[:a]
        else:
            data[a:b] = randomness.randbytes(b - a)
        if bytes(data) != content:
            return bytes(data)
    raise AssertionError("nothing changed")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(inner, (*path, key))
    return found


def mutated(value: Any, randomness: Random) -> Any:
    """A copy with something inside replaced, taken out, added, or made just a little different."""
    copy = json.loads(json.dumps(value))
    path = randomness.choice(places(copy))
    parent = copy
    for key in path[:-1]:
        parent = parent[key]
    key, old = path[-1], parent[path[-1]]
    way = randomness.randrange(5)
    if way == 0:
        del parent[key]
    elif way == 1 and isinstance(parent, dict):
        parent[randomness.choice(["extra", "__class__", "", "sha256"])] = randomness.choice(VALUES)
    elif way == 2 and type(old) in (int, float):
        parent[key] = randomness.choice([old + 1, old - 1, -old, old * 2, old / 2, float(old), old * (1 + 1e-9)])
    else:
        parent[key] = randomness.choice(VALUES)
    return copy


def mutated_json(content: bytes, randomness: Random) -> bytes:
    """JSON that is other JSON, or almost JSON."""
    value = json.loads(content)
    if randomness.random() < 0.75:
        return json.dumps(mutated(value, randomness)).encode()
    text = json.dumps(value)
    commas = [i for i, c in enumerate(text) if c in ":,"]
    cut = randomness.choice(commas) + 1
    end = min([i for i in (text.find(",", cut), text.find("}", cut), len(text)) if i > 0])
    if randomness.random() < 0.3 and text.startswith("{"):
        first = text[1 : text.index(",")]
        return ("{" + first + ", " + text[1:]).encode()
    return (text[:cut] + randomness.choice(TOKENS) + text[end:]).encode()


TOML = [
    "nan", "inf", "-inf", "1e400", "0", "-1", "1", "0.5", "true", "[]", "{}", '""', '"x"', '"../../x.npz"',
    '"/dev/zero"',
    '"~nobody/x.npz"', '"~nobody"', '"\\u0000.npz"', '"' + "y" * 5000 + '.npz"', '"' + "y" * 5000 + '"', "9" * 400,
    "9" * 5000, "9223372036854775807", "99999999999", "1979-05-27", "[" * 2000, "[[1, 2], [3]]", '"mnist"', '"cifar10"',
    '"99999999999@0.1"', '"5@0.1, 1@nan"', '"mlp-2"', '"cnn-small"', '"cifar10-15"', '"orthogonal"', '"laplace"',
    '"data-free"', '"cuda:9"', '"lbd"', '"best"', "{ a = { b = 1 } }", "0x7fffffff", "1_000", "'''\nx'''",
]  # fmt: skip


def mutated_toml(content: bytes, randomness: Random) -> bytes:
    """TOML with another value, line, or name somewhere."""
    lines = content.decode().split("\n")
    chosen = randomness.choice([i for i, line in enumerate(lines) if " = " in line])
    name, _, _ = lines[chosen].partition(" = ")
    way = randomness.randrange(6)
    if way == 0:
        del lines[chosen]
    elif way == 1:
        lines.insert(chosen, randomness.choice(lines))
    elif way == 2:
        lines[chosen] = f"{randomness.choice(['seeds', 'a.b.c', 'posterior', name + name])} = 1"
    else:
        lines[chosen] = f"{name} = {randomness.choice(TOML)}"
    return "\n".join(lines).encode()


def mutated_safetensors(content: bytes, randomness: Random) -> bytes:
    """A header that lies: about its own length, or about names, types, shapes and places."""
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    if randomness.random() < 0.2:
        claimed = randomness.choice([0, 1, length - 1, length + 1, len(content), 2**20 + 1, 2**31, 2**63, 2**64 - 1])
        return claimed.to_bytes(8, "little") + content[8:]
    name = randomness.choice(sorted(header.keys() - {"__metadata__"}))
    entry = header[name]
    way = randomness.randrange(7)
    if way == 0:
        entry["dtype"] = randomness.choice(
            ["F64", "F16", "BF16", "I64", "BOOL", "F8_E4M3", "C64", "", 3, None, ["F32"]]
        )
    elif way == 1:
        entry["shape"] = randomness.choice(
            [[], [0], [-1], [2**31], [2**62, 4], [2**63, 2], [1.0], ["4"], None, 7, [1] * 200, [*entry["shape"], 2]]
        )
    elif way == 2:
        start, end = entry["data_offsets"]
        entry["data_offsets"] = randomness.choice(
            [
                [0, end],
                [start, end + 4],
                [end, start],
                [start - 4, end - 4],
                [0, 2**63],
                [0, 0],
                [start],
                [],
                None,
                [0.0, 4.0],
            ]
        )
    elif way == 3:
        header[randomness.choice(["extra", "", "../x", "__metadata__"])] = randomness.choice([entry, {}, {"a": 1}, []])
    elif way == 4:
        other = randomness.choice(sorted(header))
        header[name], header[other] = header[other], header[name]
    elif way == 5:
        del header[name]
    else:
        text = mutated_json(json.dumps(header).encode(), randomness)
        return len(text).to_bytes(8, "little") + text + body
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body
