"""Partition functions give what Pinot gives: its own test vectors (`PartitionFunctionTest`)."""

import pytest

from merlot.errors import InvalidInputError
from merlot.spec import partition_functions
from merlot.spec.indexing import PartitionFunctionSpec
from merlot.values import partition_hashes as hashes

RAW = [
    bytes.fromhex(text)
    for text in [
        "d69fd5b8b4db12",
        "45f3e93169e33e",
        "67f8caaa74570c",
        "98e647c751fa95",
        "76115d9e4289b8",
        "fd48839f1afaaf",
        "40c19b3c53846b",
        "40ebba7c0762ac",
        "e92430ae8d9c58",
        "4a9c4886be117b",
    ]
]
TEXTS = [raw.decode("utf-8", "replace") for raw in RAW]


def partition(name: str, text: str, count: int = 5, **config: str) -> int:
    spec = PartitionFunctionSpec(function_name=name, num_partitions=count, function_config=config)
    return partition_functions.get(spec)(text)


def test_murmur2_hashes_as_kafka() -> None:
    assert [hashes.murmur2(raw) for raw in RAW] == [
        *(-1044832774, -594851693, 1441878663, 1766739604, 1034724141),
        *(-296671913, 443511156, 1483601453, 1819695080, -931669296),
    ]


def test_murmur3_hashes_as_guava() -> None:
    assert [hashes.murmur3_x86_32(raw, 0) for raw in RAW] == [
        *(1255034832, -395463542, 659973067, 1070436837, -1193041642),
        *(-1412829846, -483463488, -1385092001, 568671606, -807299446),
    ]
    assert [hashes.murmur3_x86_32(raw, 9001) for raw in RAW] == [
        *(-590969347, -315366997, 1642137565, -1732240651, -597560989),
        *(-1430018124, -448506674, 410998174, -1912106487, -19253806),
    ]


def test_murmur3_x64_hashes_as_infinispan() -> None:
    assert [hashes.murmur3_x64_32(hashes.utf8(text), 0) for text in TEXTS] == [
        *(-930531654, 1010637996, -1251084035, -1551293561, 1591443335),
        *(181872103, 1308755538, -432310401, -701537488, 674867586),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (971027396, -764297089, -473194025, 48, 79)),
        ("1", (-1993445489, -1810453357, -84874632, 49, 80)),
        ("1000", (15042646, -940395164, -1541541278, 1507423, 2430944)),
        ("", (275646681, 0, -1811735039, 0, 1)),
    ],
)
def test_hashes_of_short_texts(text: str, expected: tuple[int, ...]) -> None:
    data = text.encode()
    assert (
        hashes.murmur2(data),
        hashes.murmur3_x86_32(data, 0),
        hashes.murmur3_x64_32(data, 0),
        hashes.java_string_hash(text),
        hashes.java_bytes_hash(data),
    ) == expected


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("Murmur", {}, "1 4 4 1 1 2 0 4 2 3"),
        ("murmur2", {}, "1 4 4 1 1 2 0 4 2 3"),
        ("Murmur3", {}, "4 3 3 2 3 4 0 3 1 4"),
        ("Murmur3", {"seed": "9001"}, "2 1 3 2 2 1 1 4 4 2"),
        ("Murmur3", {"variant": "x64_32"}, "4 1 3 2 0 3 3 2 0 1"),
        ("Murmur3", {"variant": "X64_32", "seed": "9001"}, "2 1 4 2 2 2 2 1 3 3"),
        ("ByteArray", {}, "1 3 2 0 0 4 4 1 2 4"),
    ],
)
def test_partitions_are_pinots(name: str, config: dict[str, str], expected: str) -> None:
    assert " ".join(str(partition(name, text, 5, **config)) for text in TEXTS) == expected


def test_murmur_of_small_numbers() -> None:
    assert [partition("Murmur", text, 4) for text in ("0", "1", "2")] == [0, 3, 0]


def test_raw_bytes_are_read_from_hex() -> None:
    assert partition("Murmur", RAW[0].hex(), useRawBytes="true") == (-1044832774 & 0x7FFFFFFF) % 5
    with pytest.raises(InvalidInputError, match="hex"):
        partition("FNV", "zz", useRawBytes="true")


def test_fnv_follows_its_published_vectors() -> None:
    assert hashes.fnv1a_32(b"") == -2128831035
    assert hashes.fnv1a_32(b"foobar") == 0xBF9CF968 - 2**32
    assert hashes.fnv1_32(b"foobar") == 0x31F0B262
    assert hashes.fnv1a_64(b"foobar") == 0x85944171F73967E8 - 2**64
    assert hashes.fnv1_64(b"foobar") == 0x340D8765A4DDA9C2
    assert partition("FNV", "foobar", 7, variant="fnv1a_64") == (0x85944171F73967E8 & (2**63 - 1)) % 7


def test_java_hash_counts_utf16_units() -> None:
    assert hashes.java_string_hash("😀") == 31 * 0xD83D + 0xDE00


def test_unpaired_surrogate_hashes_as_a_question_mark() -> None:
    assert hashes.utf8("a\ud800") == b"a?"


def test_modulo_is_never_negative() -> None:
    assert [partition("Modulo", text, 4) for text in ("-1", "7", "+7", str(-(2**63)))] == [3, 3, 3, 0]


@pytest.mark.parametrize("text", ["", "1.0", " 1", "1_0", "x", "+-1", str(2**63), "9" * 5000])
def test_modulo_refuses_what_is_no_long(text: str) -> None:
    with pytest.raises(InvalidInputError, match="whole numbers"):
        partition("Modulo", text)


def test_bounded_column_value_gives_zero_to_all_others() -> None:
    config = {"columnValues": "Maths|english|Chemistry", "columnValuesDelimiter": "|"}
    got = [partition("BoundedColumnValue", text, 4, **config) for text in ("maths", "English", "Chemistry", "Physics")]
    assert got == [1, 2, 3, 0]
    with pytest.raises(InvalidInputError, match="numPartitions: 4"):
        partition("BoundedColumnValue", "x", 3, **config)


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [("POSITIVE_MODULO", 1), ("abs", 4), ("MASK", ((-9) & (2**63 - 1)) % 5), ("PRE_MODULO_ABS", 4), ("NO_OP", -9)],
)
def test_normalizer_can_be_chosen(normalizer: str, expected: int) -> None:
    assert partition("Modulo", "-9", partitionIdNormalizer=normalizer) == expected


def test_pre_modulo_abs_gives_zero_for_the_least_number() -> None:
    assert partition("Modulo", str(-(2**63)), partitionIdNormalizer="PRE_MODULO_ABS") == 0


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("Murmor", {}, "unknown partition function 'Murmor'"),
        ("Murmur", {"seed": "1"}, "unknown option 'seed' of Murmur"),
        ("Murmur3", {"variant": "x32"}, "unknown variant 'x32'"),
        ("Murmur3", {"seed": "one"}, "seed must be a whole number"),
        ("Murmur3", {"partitionIdNormalizer": "none"}, "unknown partitionIdNormalizer"),
        ("BoundedColumnValue", {}, "needs columnValues"),
    ],
)
def test_wrong_declarations_are_refused(name: str, config: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        partition(name, "1", 5, **config)
