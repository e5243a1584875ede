"""Rename modules, symbols and attributes of the whole repository by tables; to be deleted after the renames.

    python -m tools.renames             apply each table in order, with one commit for each
    python -m tools.renames TABLE…      apply these tables only
    python -m tools.renames --root DIR  work on another checkout

The tables in `tables/` are applied in the order of their names. The first line of a table is the title of its
commit, after a `#`. The suffix says what the lines mean:

    .modules     `old.module -> new.module`, with `as name` where an import binds another name;
                 a package moves with what it holds, unless a longer line says otherwise; `-> -` dissolves it
    .symbols     `package.module:Old -> New`: classes, functions and constants at the top of a module
    .attributes  `package.module:Class.old -> new` or `:function.parameter -> new`; pyright's language server
                 finds the uses, which takes minutes and some gigabytes of memory
    .toml        replacements where no name is seen, such as an import by an f-string: see `replacements.py`

Imports are sorted and files formatted after each table. The command prints what a table names and the tree
does not have, and each name that is in use already. Begin with a clean checkout. A new module of a package
that moves follows it; one of a package that is dissolved needs a line of its own.
"""
