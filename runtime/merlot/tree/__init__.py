"""What a query is once it is understood: types (`types`), typed nodes (`nodes`), and both as JSON (`tree_json`).

The vocabulary between those who make such trees (`sql`) and those who run them (`query`); knows neither text nor values
in bulk. Immutable, so any thread may share them.
"""
