"""Pinot's partition functions: map the text of a value to a partition number (package `common.partition.function`).

Names, normalizers and variants are case-insensitive, as in Pinot. The text of a value is what
`FieldSpec.getStringValue` returns: decimal digits, hex for BYTES. Pure functions; the hashes are in
`partition_hashes`.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from merlot.entry_points import entry_points_named
from merlot.errors import InvalidInputError
from merlot.spec.indexing import PartitionFunctionSpec
from merlot.values import partition_hashes as hashes

T = TypeVar("T")
PartitionFunction = Callable[[str], int]
Hash = Callable[[str], int]
Normalizer = Callable[[int, int, int], int]
"""Function of a hash, its number of bits and the number of partitions; returns a partition."""

NORMALIZERS: Mapping[str, Normalizer] = {
    "POSITIVE_MODULO": lambda value, bits, count: value % count,
    "ABS": lambda value, bits, count: abs(value) % count,
    "MASK": lambda value, bits, count: (value & ((1 << (bits - 1)) - 1)) % count,
    "PRE_MODULO_ABS": lambda value, bits, count: 0 if value == -(1 << (bits - 1)) else abs(value) % count,
    "NO_OP": lambda value, bits, count: value,
}


def get(spec: PartitionFunctionSpec) -> PartitionFunction:
    """Return the function that a table declares; raise InvalidInputError if the declaration is wrong.

    The returned function raises InvalidInputError for text that it cannot partition, such as Modulo for text that is no
    number. A plug-in's function raises PlugInError, a subclass, if it fails or returns no integer."""
    own = _own_function(spec)
    if own is not None:
        return own
    family = _family(spec.function_name)
    _refuse_unknown_options(spec, family)
    hash_of, bits = family.build(spec)
    wanted = spec.function_config.get("partitionIdNormalizer", family.normalizer)
    if wanted.upper() not in NORMALIZERS:
        raise InvalidInputError(f"unknown partitionIdNormalizer {wanted!r}; one of {', '.join(NORMALIZERS)}")
    normalize, count = NORMALIZERS[wanted.upper()], spec.num_partitions
    return lambda text: normalize(hash_of(text), bits, count)


@dataclass(frozen=True, kw_only=True)
class _Family:
    """Partition function by name. `build` returns its hash function and the number of bits of a hash."""

    name: str
    normalizer: str
    options: frozenset[str]
    build: Callable[[PartitionFunctionSpec], tuple[Hash, int]]


_MAX_DIGITS = 4000
"""Most digits, leading zeros included; Python converts no text of more than 4,300."""


def _modulo(spec: PartitionFunctionSpec) -> tuple[Hash, int]:
    return _parse_long, 64


def _parse_long(text: str) -> int:
    """Parse a number as Java's Long.parseLong does."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdecimal() or len(digits) > _MAX_DIGITS or not -(2**63) <= int(text) < 2**63:
        raise InvalidInputError(f"Modulo partitions whole numbers of 64 bits value={text!r:.40}")
    return int(text)


def _murmur2(spec: PartitionFunctionSpec) -> tuple[Hash, int]:
    to_bytes = _to_bytes(spec)
    return lambda text: hashes.murmur2(to_bytes(text)), 32


def _murmur3(spec: PartitionFunctionSpec) -> tuple[Hash, int]:
    to_bytes, seed = _to_bytes(spec), _seed(spec)
    hash_of = _variant(spec, {"x86_32": hashes.murmur3_x86_32, "x64_32": hashes.murmur3_x64_32})
    return lambda text: hash_of(to_bytes(text), seed), 32


def _hash_code(spec: PartitionFunctionSpec) -> tuple[Hash, int]:
    return hashes.java_string_hash, 32


def _byte_array(spec: PartitionFunctionSpec) -> tuple[Hash, int]:
    return lambda text: hashes.java_bytes_hash(hashes.utf8(text)), 32


def _fnv(spec: PartitionFunctionSpec) -> tuple[Hash, int]:
    to_bytes = _to_bytes(spec)
    variants = {
        "fnv1a_32": (hashes.fnv1a_32, 32),
        "fnv1_32": (hashes.fnv1_32, 32),
        "fnv1_64": (hashes.fnv1_64, 64),
        "fnv1a_64": (hashes.fnv1a_64, 64),
    }
    hash_of, bits = _variant(spec, variants)
    return lambda text: hash_of(to_bytes(text)), bits


def _bounded_column_value(spec: PartitionFunctionSpec) -> tuple[Hash, int]:
    config = spec.function_config
    if not config.get("columnValues") or not config.get("columnValuesDelimiter"):
        raise InvalidInputError("BoundedColumnValue needs columnValues and columnValuesDelimiter in functionConfig")
    texts = [_folded(value) for value in config["columnValues"].split(config["columnValuesDelimiter"])]
    if spec.num_partitions != len(texts) + 1:
        raise InvalidInputError(
            f"BoundedColumnValue of {len(texts)} values needs numPartitions: {len(texts) + 1} (0 is every other value)"
        )
    numbers = {value: number for number, value in reversed(list(enumerate(texts, 1)))}
    return lambda text: numbers.get(_folded(text), 0), 32


def _folded(text: str) -> str:
    """Return equal texts for texts that Java's equalsIgnoreCase calls equal: it folds characters one by one."""
    upper = (character.upper() if len(character.upper()) == 1 else character for character in text)
    return "".join(character.lower() if len(character.lower()) == 1 else character for character in upper)


def _to_bytes(spec: PartitionFunctionSpec) -> Callable[[str], bytes]:
    if spec.function_config.get("useRawBytes", "false").lower() != "true":
        return hashes.utf8
    return _from_hex


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidInputError(f"useRawBytes partitions hex digits value={text!r}") from None


def _seed(spec: PartitionFunctionSpec) -> int:
    text = spec.function_config.get("seed", "0")
    try:
        return int(text or "0")
    except ValueError:
        raise InvalidInputError(f"seed must be a whole number, not {text!r}") from None


def _variant(spec: PartitionFunctionSpec, variants: Mapping[str, T]) -> T:
    default = next(iter(variants))
    name = spec.function_config.get("variant", default).lower() or default
    if name not in variants:
        raise InvalidInputError(f"unknown variant {name!r} of {spec.function_name}; one of {', '.join(variants)}")
    return variants[name]


_NORMALIZER = frozenset({"partitionIdNormalizer"})
_FAMILIES: Mapping[str, _Family] = {
    family.name.lower(): family
    for family in (
        _Family(name="Modulo", normalizer="POSITIVE_MODULO", options=_NORMALIZER, build=_modulo),
        _Family(name="Murmur", normalizer="MASK", options=_NORMALIZER | {"useRawBytes"}, build=_murmur2),
        _Family(name="Murmur2", normalizer="MASK", options=_NORMALIZER | {"useRawBytes"}, build=_murmur2),
        _Family(
            name="Murmur3",
            normalizer="MASK",
            options=_NORMALIZER | {"useRawBytes", "seed", "variant"},
            build=_murmur3,
        ),
        _Family(name="HashCode", normalizer="PRE_MODULO_ABS", options=_NORMALIZER, build=_hash_code),
        _Family(name="ByteArray", normalizer="PRE_MODULO_ABS", options=_NORMALIZER, build=_byte_array),
        _Family(name="FNV", normalizer="MASK", options=_NORMALIZER | {"useRawBytes", "variant"}, build=_fnv),
        _Family(
            name="BoundedColumnValue",
            normalizer="NO_OP",
            options=frozenset({"columnValues", "columnValuesDelimiter"}),
            build=_bounded_column_value,
        ),
    )
}
FUNCTION_NAMES = tuple(family.name for family in _FAMILIES.values())


ENTRY_POINTS = "merlot.partition_functions"
"""Entry point group of plug-in functions. Each names a callable from PartitionFunctionSpec to PartitionFunction."""


class PlugInError(InvalidInputError):
    """Raised if a plug-in's partition function fails: the value's partition is unknown."""


def _own_function(spec: PartitionFunctionSpec) -> PartitionFunction | None:
    """Return the function that an installed package offers under this name, or None; raise PlugInError if it cannot be
    loaded."""
    if spec.function_name.lower() in _FAMILIES:
        return None
    for entry_point in entry_points_named(ENTRY_POINTS, spec.function_name):
        try:
            make: Callable[[PartitionFunctionSpec], PartitionFunction] = entry_point.load()
            function = make(spec)
        except Exception as error:
            raise PlugInError(f"partition function cannot be had name={entry_point.name} cause={error!r}") from error
        return _guarded(entry_point.name, function)
    return None


def _guarded(name: str, function: PartitionFunction) -> PartitionFunction:
    """Wrap a plug-in's function so that it returns an integer or raises InvalidInputError or PlugInError."""

    def partition_of(text: str) -> int:
        try:
            return operator.index(function(text))
        except InvalidInputError:
            raise
        except Exception as error:
            raise PlugInError(f"partition function failed name={name} value={text!r:.40} cause={error!r}") from error

    return partition_of


def _family(name: str) -> _Family:
    family = _FAMILIES.get(name.lower())
    if family is None:
        raise InvalidInputError(f"unknown partition function {name!r}; one of {', '.join(FUNCTION_NAMES)}")
    return family


def _refuse_unknown_options(spec: PartitionFunctionSpec, family: _Family) -> None:
    for option in spec.function_config:
        if option not in family.options:
            names = ", ".join(sorted(family.options))
            raise InvalidInputError(f"unknown option {option!r} of {family.name}; one of {names}")
