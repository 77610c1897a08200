"""Recipes of the functions of texts, bytes, URLs, addresses, JSON and lists."""

from __future__ import annotations

from typing import Final

from tests.oracle.registry_recipe import Recipe, recipe

_COUNTS = ("1", "2", "3", "7")
_FINDS = ("'a'", "'an'", "'1'", "'ß'", "'-'", "'😀'")
_PATTERNS = ("'[0-9]+'", "'^a'", "'s+'", "'(.)1'", "'é|a'")


def _texts() -> dict[str, tuple[Recipe, ...]]:
    return {
        "upper": (recipe("s", "upper({0})", "s"),),
        "lower": (recipe("s", "lower({0})", "s"),),
        "length": (recipe("s", "length({0})", "w"),),
        "reverse": (recipe("s", "ref_reverse({0})", "s"),),
        "concat": (recipe("s s", "{0} || {1}", "s"), recipe("s s s", "{0} || {2} || {1}", "s")),
        "concatws": (
            recipe("s s s", "{1} || {0} || {2}", "s"),
            recipe("s s s s", "{1} || {0} || {2} || {0} || {3}", "s"),
        ),
        "substr": (
            recipe("s i", "ref_slice({0}, {1}, 1000000)", "s", i=("0", "1", "3")),
            recipe("s i n", "ref_slice({0}, {1}, {2})", "s", i=("0", "1"), n=("1", "2", "4")),
        ),
        "substring": (
            recipe("s n", "ref_slice({0}, {1} - 1, 1000000)", "s", n=("1", "2", "4")),
            recipe("s n n", "ref_slice({0}, {1} - 1, {1} - 1 + {2})", "s", n=("1", "2", "4")),
        ),
        "leftsubstr": (recipe("s n", "ref_left({0}, {1})", "s", n=("0", "1", "3", "9")),),
        "rightsubstr": (recipe("s n", "ref_right({0}, {1})", "s", n=("0", "1", "3", "9")),),
        "trim": (recipe("s", "trim({0})", "s"),),
        "ltrim": (recipe("s", "ltrim({0})", "s"),),
        "rtrim": (recipe("s", "rtrim({0})", "s"),),
        "lpad": (recipe("s n x", "ref_lpad({0}, {1}, {2})", "s", n=("0", "2", "5"), x=("'0'", "'xy'")),),
        "rpad": (recipe("s n x", "ref_rpad({0}, {1}, {2})", "s", n=("0", "2", "5"), x=("'0'", "'xy'")),),
        "repeat": (
            recipe("s n", "ref_repeat({0}, '', {1})", "s", n=_COUNTS),
            recipe("s x n", "ref_repeat({0}, {1}, {2})", "s", n=_COUNTS, x=("'-'", "''")),
        ),
        "initcap": (recipe("p", "ref_initcap({0})", "s"),),
        "replace": (recipe("s x x", "replace({0}, {1}, {2})", "s", x=_FINDS),),
        "remove": (recipe("s x", "replace({0}, {1}, '')", "s", x=_FINDS),),
        "normalize": (recipe("s", "ref_nfc({0})", "s"), recipe("s x", "ref_nfkc({0})", "s", x=("'NFKC'",))),
        "startswith": (
            recipe("s s", "starts_with({0}, {1})", "b"),
            recipe("s x", "starts_with({0}, {1})", "b", x=_FINDS),
        ),
        "endswith": (recipe("s s", "ends_with({0}, {1})", "b"), recipe("s x", "ends_with({0}, {1})", "b", x=_FINDS)),
        "contains": (recipe("s s", "contains({0}, {1})", "b"), recipe("s x", "contains({0}, {1})", "b", x=_FINDS)),
        "strpos": (
            recipe("s x", "ref_find({0}, {1})", "w", x=_FINDS),
            recipe("s x n", "ref_occurrence({0}, {1}, {2})", "w", x=_FINDS, n=_COUNTS),
        ),
        "strrpos": (
            recipe("s x", "ref_last({0}, {1})", "w", x=_FINDS),
            recipe("s x n", "ref_rfind({0}, {1}, {2})", "w", x=_FINDS, n=_COUNTS),
        ),
        "strcmp": (recipe("s s", "ref_compare({0}, {1})", "w"),),
        "hammingdistance": (recipe("s s", "ref_hamming({0}, {1})", "w"),),
        "levenshteindistance": (recipe("s s", "ref_levenshtein({0}, {1})", "w"),),
        "regexplike": (
            recipe("s x", "regexp_matches({0}, {1})", "b", x=_PATTERNS),
            recipe("s x i", "regexp_matches({0}, {1}, {2})", "b", x=_PATTERNS, i=("'i'",)),
        ),
        "regexplikevar": (
            recipe("s x", "regexp_matches({0}, {1})", "b", x=_PATTERNS),
            recipe("s x i", "regexp_matches({0}, {1}, {2})", "b", x=_PATTERNS, i=("'i'",)),
        ),
        "likevar": (recipe("s x", "({0} LIKE {1})", "b", x=("'%a%'", "'_b%'", "'%'", "'a'")),),
        "regexpextract": (
            recipe("s x", "ref_extract({0}, {1}, 0, '')", "s", x=_PATTERNS),
            recipe(
                "s x n d",
                "ref_extract({0}, {1}, {2}, {3})",
                "s",
                x=("'(.)1'", "'(a|b)'"),
                n=("0", "1"),
                d=("'none'", "''"),
            ),
        ),
        "regexpreplace": (
            recipe("s x y", "ref_replace({0}, {1}, {2}, 0, -1)", "s", x=_PATTERNS, y=("'-'", "''")),
            recipe(
                "s x y n m",
                "ref_replace({0}, {1}, {2}, {3}, {4})",
                "s",
                x=_PATTERNS,
                y=("'-'",),
                n=("0", "1"),
                m=("-1", "0"),
            ),
        ),
        "split": (recipe("c x", "ref_split({0}, {1})", "e", x=("','", "'a'")),),
        "splitpart": (
            recipe("c x n", "ref_part({0}, {1}, {2})", "s", x=("','",), n=("0", "1", "2", "-1", "-2")),
            recipe("c x l n", "ref_limited({0}, {1}, {2}, {3})", "s", x=("','",), l=("1", "2"), n=("0", "1", "-1")),
        ),
        "prefixes": (recipe("s n", "ref_prefixes({0}, {1})", "e", n=_COUNTS),),
        "suffixes": (recipe("s n", "ref_suffixes({0}, {1})", "e", n=_COUNTS),),
        "uniquengrams": (
            recipe("s n", "ref_grams({0}, {1})", "e", n=_COUNTS),
            recipe("s n m", "ref_grams_to({0}, {1}, {2})", "e", n=("1", "2"), m=("2", "3")),
        ),
        "prefixeswithprefix": (
            recipe("s n x", "list_transform(ref_prefixes({0}, {1}), lambda p: {2} || p)", "e", n=_COUNTS, x=("'^'",)),
        ),
        "suffixeswithsuffix": (
            recipe("s n x", "list_transform(ref_suffixes({0}, {1}), lambda p: p || {2})", "e", n=_COUNTS, x=("'$'",)),
        ),
    }


def _hashes() -> dict[str, tuple[Recipe, ...]]:
    seeds = ("0", "9001", "-5")
    plain = {"fnv1hash32": "fnv1_32", "fnv1ahash32": "fnv1a_32", "fnv1hash64": "fnv1_64", "fnv1ahash64": "fnv1a_64"}
    seeded = {
        "murmurhash2bit64": "murmur2_64",
        "murmurhash3bit32": "murmur3_32",
        "murmurhash3bit64": "murmur3_64",
        "murmurhash3x64bit32": "murmur3_x64_32",
        "murmurhash3x64bit64": "murmur3_x64_32",
    }
    wide = {"murmurhash3bit128": "murmur3_128", "murmurhash3x64bit128": "murmur3_x64_128"}
    return {
        **{name: (recipe("x", f"ref_{word}({{0}})", "W"),) for name, word in plain.items()},
        **{f"{name}utf8": (recipe("s", f"ref_{word}(encode({{0}}))", "W"),) for name, word in plain.items()},
        **{name: (recipe("x n", f"ref_{word}({{0}}, {{1}})", "W", n=seeds),) for name, word in seeded.items()},
        **{name: (recipe("x n", f"ref_{word}({{0}}, {{1}})", "x", n=seeds),) for name, word in wide.items()},
        "murmur332": (recipe("x", "ref_murmur3_32({0}, 0)", "W"),),
        "crc32c": (recipe("x", "ref_crc32c({0})", "W"),),
        "md5raw": (recipe("x", "ref_md5({0})", "x"),),
    }


def _codes() -> dict[str, tuple[Recipe, ...]]:
    hashes = {"md5": "md5", "sha": "sha1", "sha224": "sha3_224", "sha256": "sha256", "sha512": "sha512"}
    return {
        **{name: (recipe("x", f"ref_hash({{0}}, '{word}')", "s"),) for name, word in hashes.items()},
        "codepoint": (recipe("S", "unicode({0})", "w"),),
        "chr": (recipe("n", "chr({0})", "s", n=("97", "8364", "128512")),),
        "toutf8": (recipe("s", "encode({0})", "x"),),
        "fromutf8": (Recipe(("s",), "{0}", "s", (), "FROMUTF8(TOUTF8({0}))"),),
        "toascii": (recipe("s", "ref_ascii({0})", "x"),),
        "fromascii": (Recipe(("s",), "ref_from_ascii(ref_ascii({0}))", "s", (), "FROMASCII(TOASCII({0}))"),),
        "tobase64": (recipe("x", "to_base64({0})", "s"),),
        "frombase64": (Recipe(("x",), "{0}", "x", (), "FROMBASE64(TOBASE64({0}))"),),
        "bytestohex": (recipe("x", "lower(hex({0}))", "s"),),
        "hextobytes": (Recipe(("x",), "{0}", "x", (), "HEXTOBYTES(BYTESTOHEX({0}))"),),
        "touuidbytes": (recipe("x", "ref_uuid_bytes({0})", "x", x=("'00000000-0000-0001-0000-000000000002'",)),),
        "fromuuidbytes": (
            Recipe(
                ("x",),
                "ref_uuid_text(from_hex(md5(lower(hex({0})))))",
                "s",
                (),
                "FROMUUIDBYTES(HEXTOBYTES(MD5(TOUTF8(BYTESTOHEX({0})))))",
            ),
        ),
        "encodeurl": (recipe("s", "ref_encode_url({0})", "s"),),
        "decodeurl": (Recipe(("s",), "{0}", "s", (), "DECODEURL(ENCODEURL({0}))"),),
        "murmurhash2": (recipe("x", "ref_murmur2({0})", "W"),),
        "murmurhash2utf8": (recipe("s", "ref_murmur2(encode({0}))", "W"),),
        **_hashes(),
        "base64encode": (recipe("x", "ref_base64({0})", "x"),),
        "base64decode": (Recipe(("x",), "{0}", "x", (), "BASE64DECODE(BASE64ENCODE({0}))"),),
        "frombytes": (recipe("x c", "ref_latin({0})", "s", c=("'ISO-8859-1'",)),),
        "tobytes": (recipe("s c", "ref_utf16({0})", "x", c=("'UTF-16BE'",)),),
        "hexdecimaltolong": (Recipe(("w",), "abs({0})", "W", (), "HEXDECIMALTOLONG(LONGTOHEXDECIMAL(ABS({0})))"),),
        "longtohexdecimal": (recipe("L", "ref_hex_number({0})", "s"),),
        "crc32": (recipe("x", "ref_crc32({0})", "W"),),
        "adler32": (recipe("x", "ref_adler32({0})", "W"),),
        "urlprotocol": (recipe("u", "ref_protocol({0})", "s"),),
        "urldomain": (recipe("u", "ref_domain({0})", "s"),),
        "urldomainwithoutwww": (recipe("u", "regexp_replace(ref_domain({0}), '^www.', '')", "s"),),
        "urltopleveldomain": (recipe("u", "list_last(string_split(ref_domain({0}), '.'))", "s"),),
        "urlpath": (recipe("u", "ref_path({0})", "s"),),
        "urlquerystring": (recipe("u", "ref_query({0})", "s"),),
        "urlfragment": (recipe("u", "ref_fragment({0})", "s"),),
        "urlport": (recipe("u", "ref_port({0})", "w"),),
        "extracturlparameter": (recipe("u x", "ref_parameter({0}, {1})", "s", x=("'x'", "'y'", "'z'")),),
        "extracturlparameters": (recipe("u", "ref_parameters({0})", "e"),),
        "extracturlparameternames": (recipe("u", "ref_parameter_names({0})", "e"),),
        **{
            name: (recipe("u", f"ref_{name}({{0}})", "s"),)
            for name in (
                "urlfirstsignificantsubdomain",
                "cuttofirstsignificantsubdomain",
                "cuttofirstsignificantsubdomainwithwww",
                "urlpathwithquery",
                "urlquerystringandfragment",
                "urlnetloc",
                "cutwww",
                "cutquerystring",
                "cutfragment",
                "cutquerystringandfragment",
            )
        },
        "cuturlparameter": (recipe("u x", "ref_cuturlparameter({0}, {1})", "s", x=("'x'", "'y'", "'z'")),),
        "urlhierarchy": (recipe("u", "ref_urlhierarchy({0})", "e"),),
        "urlpathhierarchy": (recipe("u", "ref_urlpathhierarchy({0})", "e"),),
        "inidset": (
            Recipe(
                ("I",),
                "{0} IN (5, 6, -2147483648, 0, 1, 2, 3)",
                "b",
                (),
                "INIDSET({0}, 'ATswAQABAAAFAACAAAACAAAAAwAFAAEAAAA=')",
            ),
        ),
        "issubnetof": (recipe("x p", "ref_in_subnet({0}, {1})", "b", x=("'10.1.0.0/16'", "'10.1.2.0/28'")),),
        "ipprefix": (recipe("p n", "ref_prefix({0}, {1})", "s", n=("8", "24", "29", "32")),),
        "ipsubnetmin": (Recipe(("p",), "ref_subnet_min({0} || '/29')", "s", (), "IPSUBNETMIN(CONCAT({0}, '/29'))"),),
        "ipsubnetmax": (Recipe(("p",), "ref_subnet_max({0} || '/29')", "s", (), "IPSUBNETMAX(CONCAT({0}, '/29'))"),),
        "jsonextractscalar": (
            Recipe(
                ("w",),
                "{0}",
                "W",
                (),
                "JSONEXTRACTSCALAR(CONCAT('{{\"a\":[', CONCAT(CAST({0} AS STRING), ']}}')), '$.a[0]', 'LONG')",
            ),
        ),
        "jsonpathlong": (
            Recipe(
                ("w",), "{0}", "W", (), "JSONPATHLONG(CONCAT('{{\"a\":', CONCAT(CAST({0} AS STRING), '}}')), '$.a', 0)"
            ),
        ),
        "jsonpathdouble": (
            Recipe(
                ("w",),
                "{0}::DOUBLE",
                "r",
                (),
                "JSONPATHDOUBLE(CONCAT('{{\"a\":', CONCAT(CAST({0} AS STRING), '}}')), '$.a', 0)",
            ),
        ),
        "jsonpathstring": (
            Recipe(
                ("s",), "{0}", "s", (), "JSONPATHSTRING(CONCAT('{{\"a\":', CONCAT(JSONFORMAT({0}), '}}')), '$.a', 'x')"
            ),
        ),
        "jsonpathint": (
            Recipe(("w",), "{0}", "W", (), "JSONPATHINT(CONCAT('[', CONCAT(CAST({0} AS STRING), ']')), '$[-1]', 0)"),
        ),
        "jsonpathexists": (
            Recipe(
                ("w",),
                "{0} > 3",
                "b",
                (),
                "JSONPATHEXISTS(CONCAT('[{{\"a\":', CONCAT(CAST({0} AS STRING), '}}]')), '$[?(@.a > 3)]')",
            ),
        ),
        "jsonextractkey": (
            Recipe(
                ("w",),
                "CASE WHEN {0} IS NOT NULL THEN ['k' || {0}] END",
                "e",
                (),
                "JSONEXTRACTKEY(CONCAT('{{\"k', CONCAT(CAST({0} AS STRING), '\":1}}')), '$..*', 'dotNotation=true')",
            ),
        ),
        "jsonpatharray": (
            Recipe(
                ("s", "s"),
                "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN [{0}, {1}] END",
                "e",
                (),
                "JSONPATHARRAY(CONCAT('[', CONCAT(JSONFORMAT({0}), CONCAT(JSONFORMAT({1}), ']'), ','), ''), '$[*]')",
            ),
        ),
        "jsonformat": (recipe("s", "ref_json_text({0})", "s"),),
        "isjson": (recipe("p", "ref_is_json({0})", "b"), recipe("s", "ref_is_json({0})", "b")),
    }


_SHAPE = "STGEOMFROMTEXT('POLYGON ((0 0, 0 10, 10 10, 10 0, 0 0), (2 2, 4 2, 4 4, 2 4, 2 2))')"
_IN_SHAPE = (
    "({0} > 0 AND {0} < 10 AND {1} > 0 AND {1} < 10 AND NOT ({0} BETWEEN 2 AND 4 AND {1} BETWEEN 2 AND 4))::BIGINT"
)


def _geospatial() -> dict[str, tuple[Recipe, ...]]:
    point, text = "STPOINT({0}, {1})", "'POINT (' || {0} || ' ' || {1} || ')'"
    written = "STASTEXT(%s(CONCATWS('', 'POINT (', CAST({0} AS STRING), ' ', CAST({1} AS STRING), ')')))"
    equal = "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE %s END"
    return {
        "stpoint": (recipe("r r", "ref_point({0}, {1})", "x"),),
        "stdistance": (
            Recipe(("r", "r"), "ref_hypot({0}, {1})", "y", (), f"STDISTANCE({point}, STPOINT(0, 0))"),
            Recipe(
                ("w", "w"),
                "ref_great_circle(({0} % 10)::DOUBLE, ({1} % 10)::DOUBLE)",
                "y",
                (),
                "STDISTANCE(STPOINT(MOD({0}, 10), MOD({1}, 10), 1), STPOINT(1, 2, 1))",
            ),
        ),
        "stastext": (Recipe(("w", "w"), text, "s", (), f"STASTEXT({point})"),),
        "stgeomfromtext": (Recipe(("w", "w"), text, "s", (), written % "STGEOMFROMTEXT"),),
        "stgeogfromtext": (Recipe(("w", "w"), text, "s", (), written % "STGEOGFROMTEXT"),),
        "tosphericalgeography": (Recipe(("w", "w"), text, "s", (), f"STASTEXT(TOSPHERICALGEOGRAPHY({point}))"),),
        "togeometry": (Recipe(("w", "w"), text, "s", (), "STASTEXT(TOGEOMETRY(STPOINT({0}, {1}, true)))"),),
        "stgeometrytype": (Recipe(("w", "w"), equal % "'Point'", "s", (), f"STGEOMETRYTYPE({point})"),),
        "stpolygon": (
            Recipe(
                ("w", "w"),
                equal % _IN_SHAPE,
                "w",
                (),
                f"STCONTAINS({_SHAPE.replace('STGEOMFROMTEXT', 'STPOLYGON')}, {point})",
            ),
        ),
        "stcontains": (Recipe(("w", "w"), equal % _IN_SHAPE, "w", (), f"STCONTAINS({_SHAPE}, {point})"),),
        "stwithin": (Recipe(("w", "w"), equal % _IN_SHAPE, "w", (), f"STWITHIN({point}, {_SHAPE})"),),
        "stequals": (
            Recipe(("w", "w"), equal % "({0} = {1})::BIGINT", "w", (), "STEQUALS(STPOINT({0}, 1), STPOINT({1}, 1))"),
        ),
    }


def _by_type(
    name: str, ints: str, texts: str, rest: str, gives: tuple[str, str], **constants: tuple[str, ...]
) -> tuple[Recipe, ...]:
    """One for lists of numbers, one for lists of texts; the name ends as its type does."""
    found = []
    for code, words, result, theirs in (("a", ("int", "long"), gives[0], ints), ("e", ("string",), gives[1], texts)):
        arguments = tuple(
            constants.get(f"{word}_{code}", constants.get(word, code if word == "list" else word))
            for word in f"list {rest}".split()
        )
        found.append(Recipe(arguments, theirs, result, tuple(f"{name}{word}" for word in words)))
    return tuple(found)


_ELEMENTS = {"x_a": ("5", "6", "-2147483648", "8"), "x_e": ("'a'", "'é'", "''", "'ß'")}
_RANGES = {"n": ("0", "3", "-2"), "m": ("1", "4", "9")}
_PLACES = {"from": ("0", "1"), "to": ("1", "2", "3")}


def _pushes() -> dict[str, tuple[Recipe, ...]]:
    """DuckDB makes a list of a null one and a value."""
    known = "CASE WHEN {0} IS NOT NULL THEN %s END"
    elements = {"x_a": ("5", "6"), "x_e": ("'z'",)}
    return {
        f"{name}int": _by_type(name, known % theirs, known % theirs, "x", ("a", "e"), **elements)
        for name, theirs in (
            ("arraypushback", "list_append({0}, {1})"),
            ("arraypushfront", "list_prepend({1}, {0})"),
        )
    }


def _lists() -> dict[str, tuple[Recipe, ...]]:
    return {
        **_pushes(),
        "arrayindexesofint": _by_type(
            "arrayindexesof", "ref_places_i({0}, {1})", "ref_places_s({0}, {1})", "x", ("a", "a"), **_ELEMENTS
        ),
        "arraysoverlap": (recipe("a a", "list_has_any({0}, {1})", "b"), recipe("e e", "list_has_any({0}, {1})", "b")),
        "arraytomv": (recipe("a", "{0}", "a"), recipe("e", "{0}", "e")),
        "generatearray": (
            Recipe(
                (_RANGES["n"], _RANGES["m"]),
                "list_sum(CASE WHEN {0} <= {1} THEN range({0}, {1} + 1) ELSE range({0}, {1} - 1, -1) END)::BIGINT",
                "W",
                (),
                "ARRAYSUMLONG(GENERATEARRAY({0}, {1}))",
            ),
        ),
        **{
            f"generate{type_}array": (
                Recipe(
                    ("w", ("1", "2")),
                    "CASE WHEN {0} IS NOT NULL THEN COALESCE(list_sum(range({0} - 5, {0} + 1, {1})), 0)::BIGINT END",
                    "W",
                    (),
                    f"CAST(ARRAYSUM(GENERATE{type_}ARRAY({{0}} - 5, {{0}}, {{1}})) AS LONG)",
                ),
            )
            for type_ in ("int", "long", "float", "double")
        },
        "arrayvalueconstructor": (
            recipe("s s", "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN [{0}, {1}] END", "e"),
        ),
        "arraylength": (recipe("a", "len({0})", "w"), recipe("e", "len({0})", "w")),
        "arraymin": (recipe("A", "list_min({0})", "W"), recipe("E", "list_min({0})", "s")),
        "arraymax": (recipe("A", "list_max({0})", "W"), recipe("E", "list_max({0})", "s")),
        "arraysum": (recipe("a", "CASE WHEN {0} IS NOT NULL THEN COALESCE(list_sum({0})::DOUBLE, 0) END", "r"),),
        "arrayaverage": (recipe("A", "list_sum({0})::DOUBLE / len({0})", "y"),),
        "arraysumlong": (recipe("a", "CASE WHEN {0} IS NOT NULL THEN COALESCE(list_sum({0})::BIGINT, 0) END", "W"),),
        "arraysumint": (
            Recipe(
                ("a",),
                "CASE WHEN {0} IS NOT NULL"
                " THEN COALESCE(list_sum(list_filter({0}, lambda x: x IN (5, 6))), 0)::BIGINT END",
                "w",
                (),
                "ARRAYSUMINT(VALUEIN({0}, 5, 6))",
            ),
        ),
        "valuein": (
            recipe("a x", "list_filter({0}, lambda v: v = {1})", "a", x=_ELEMENTS["x_a"]),
            recipe("e x", "list_filter({0}, lambda v: v = {1})", "e", x=_ELEMENTS["x_e"]),
        ),
        "arraycontainsint": _by_type(
            "arraycontains", "list_contains({0}, {1})", "list_contains({0}, {1})", "x", ("b", "b"), **_ELEMENTS
        ),
        "arrayindexofint": _by_type(
            "arrayindexof", "ref_place_li({0}, {1})", "ref_place_ls({0}, {1})", "x", ("w", "w"), **_ELEMENTS
        ),
        "mapvalue": (
            Recipe(
                ("a", _ELEMENTS["x_a"]),
                "COALESCE(list_reverse({0})[list_position({0}, {1})], -1)",
                "W",
                (),
                "COALESCE(MAPVALUE({0}, {1}, ARRAYREVERSEINT({0})), -1)",
            ),
        ),
        "arraysortint": _by_type("arraysort", "ref_sorted_li({0})", "ref_sorted_ls({0})", "", ("a", "e")),
        "arrayreverseint": _by_type("arrayreverse", "ref_reversed_li({0})", "ref_reversed_ls({0})", "", ("a", "e")),
        "arraydistinctint": _by_type("arraydistinct", "ref_once_li({0})", "ref_once_ls({0})", "", ("a", "e")),
        "arraysliceint": _by_type(
            "arrayslice", "ref_slice_li({0}, {1}, {2})", "ref_slice_ls({0}, {1}, {2})", "from to", ("a", "e"), **_PLACES
        ),
        "arrayremoveint": _by_type(
            "arrayremove", "ref_without_li({0}, {1})", "ref_without_ls({0}, {1})", "x", ("a", "e"), **_ELEMENTS
        ),
        "arrayconcatint": _by_type("arrayconcat", "ref_both_li({0}, {1})", "ref_both_ls({0}, {1})", "list", ("a", "e")),
        "arrayunionint": _by_type("arrayunion", "ref_union_li({0}, {1})", "ref_union_ls({0}, {1})", "list", ("a", "e")),
        "arrayelementatint": _by_type(
            "arrayelementat", "ref_at_li({0}, {1})", "ref_at_ls({0}, {1})", "to", ("W", "s"), **_PLACES
        ),
        "arraytostring": (recipe("e x", "array_to_string({0}, {1})", "s", x=("'-'", "', '")),),
        "vectordims": (recipe("a", "len({0})", "w"),),
        "vectornorm": (recipe("a", "ref_norm({0})", "y"),),
        **{
            name: (
                Recipe(
                    ("a",),
                    f"ref_{word}({{0}}, ref_reversed_li({{0}}))",
                    "y",
                    (),
                    f"{name.upper()}({{0}}, ARRAYREVERSEINT({{0}}))",
                ),
            )
            for name, word in (
                ("cosinedistance", "cosine"),
                ("innerproduct", "dot"),
                ("l1distance", "l1"),
                ("l2distance", "l2"),
                ("euclideandistance", "squared"),
            )
        },
    }


TEXT_RECIPES: Final = {**_texts(), **_codes()}
LIST_RECIPES: Final = {**_lists(), **_geospatial()}
