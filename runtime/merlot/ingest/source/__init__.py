"""Read the rows of a source, by the same rules with and without Spark, from local and remote files.

Files. A source is a file, a folder or a glob. A folder stands for all files below it, at any depth. Files and folders
in it whose names begin with `_` or `.` are skipped (`_SUCCESS`, `_temporary/`), but a folder `_k=v` is data. In a glob,
`*`, `?` and `[ab]` match within one name, and `{a,b}` matches either. A folder that matches stands for what is in it. A
path that exists literally is no glob. Files of zero bytes are skipped and counted. The endings `.gz`, `.bz2`, `.zst`
and `.lz4` of text files say how they are compressed. Folders `k=v` of a path give their files a text column `k`: `%`
escapes are decoded, and `__HIVE_DEFAULT_PARTITION__` is null. If a file has such a column itself, the file's values
count. In JSON lines, a line without a value for `k` takes the folder's.

Columns. They are found by name in each file: the exact name, else the only name that differs in case, or in blanks
around it, alone. If several columns match, the file is refused with its name. In JSON lines, keys are found in each
record, by the exact name or by case alone, and a line in which several keys match is a corrupt row. A column may have
another type in each file. A column that only some files have is null in the others. A column that no file has is
reported as absent.

CSV. Quotes are as in RFC 4180, so that values may hold line breaks. Lines end with LF or CRLF. A quote within a value
that does not begin with a quote is an ordinary character. Every file has its own header. An empty value without quotes
is null, and so is the source's `nullValue`; `""` is the empty text. A blank line is no row, except in a file of one
column, where it is a null. A row of too few or too many values is corrupt. If a quote is never closed, or followed by
anything but a delimiter or the end of its line, then every line of that record is a corrupt row: no value is guessed,
and no line is left out of the count.

JSON lines. A line holds one object. A line with anything else, or with anything after the object, is a corrupt row.
Numbers and nested values keep their exact text; strings are decoded. If a record repeats a key, the last value counts.
`NaN` and `Infinity` are not JSON.

Text is UTF-8, with or without a byte order mark. A row of other bytes is corrupt; a file whose header has other bytes
is refused. A record may have at most 64 MiB.

A file that is not of the declared format is refused with its name, before any row is built: InvalidInputError. If a
storage does not answer, that is an UnavailableError.

Owns the listing of files, their division into pieces that are read independently, and reading a piece in batches of
bounded size. Must not know Spark, nor what columns become (`ingest.transform`). Without state: safe on any thread.
"""
