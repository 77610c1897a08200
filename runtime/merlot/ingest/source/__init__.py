"""Read the rows of a source, by the same rules with and without Spark, from local and remote files.

Files. A source is a file, a folder or a glob. A folder stands for all files below it, at any depth, without those
in or under names that begin with `_` or `.` (`_SUCCESS`, `_temporary/`; a folder `_k=v` is data). In a glob `*`,
`?` and `[ab]` stay within a name and `{a,b}` is either; a folder that matches stands for what is in it; a path that
exists as it is written is no glob. Files of zero bytes are left out, and counted. Endings `.gz`, `.bz2`, `.zst` and
`.lz4` of text files say how they are compressed. Folders `k=v` of a path give their files a text column `k`: `%`
escapes are decoded, and `__HIVE_DEFAULT_PARTITION__` is null. A file that has such a column itself is refused.

Columns. They are found by name in each file (in each record of JSON lines): the exact name, else the only name that
differs by case alone. If two columns could be meant, the file is refused by name. Each file's values have their own
type; a column that only some files have is null in the others, one that no file has is reported as absent.

CSV. Quotes as in RFC 4180, so that values may hold line breaks; lines end with LF or CRLF; a quote within a value
that does not begin with one is itself. Every file has its own header. An empty value without quotes is null, and so
is the source's `nullValue`; `""` is the empty text. Blank lines are no rows. A row of too few or too many values is
corrupt. If a quote is never closed, or followed by anything but a delimiter or the end of its line, then every line
of that record is a corrupt row: none is guessed, and none is counted less.

JSON lines. A line is one object; anything else, and anything after it, makes the line a corrupt row. Numbers and
nested values are taken by their exact text, strings by what they say. Of keys that a record repeats, the last
counts. `NaN` and `Infinity` are not JSON.

Text is UTF-8, with or without a byte order mark; a row of other bytes is corrupt, a header of other bytes is
refused. A record may have 64 MiB.

A file that is not of the declared format is refused by name, before any row is built: InvalidInputError. A storage
that does not answer is UnavailableError.

Owns the listing of files, their division into pieces that are read independently, and reading a piece in batches of
bounded size. Must not know Spark, nor what columns become (`ingest.transform`). Without state: safe on any thread.
"""
