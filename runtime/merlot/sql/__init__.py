"""Parse SQL text to a syntax tree, and bind the tree to a table's schema.

Reading order: `lexer` splits a text into tokens; `parse` takes options and EXPLAIN off them; `parser` builds the tree
of `syntax` from the rest. It extends `form_parser`, that `expression_parser`, and that `token_reader`. `bind` resolves
the names of a query of one stage by `scope` and types its expressions by `expressions`, which uses `predicates`,
`boolean_logic` and `condition_lists` for conditions; `labels` names the columns of the answer. `stages` binds queries
of several stages. `shapes` and `direct` bind queries that differ only in constants once.

Functions and aggregates declare their signatures in `functions` and `aggregates`. Must not know segments or plans. Pure
functions over immutable values; safe on any thread.
"""
