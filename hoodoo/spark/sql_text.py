"""What a text of Spark SQL says, as far as `hoodoo.sql` has to know: its tokens, its tree, and which tables in it are
hoodoo's.

sqlglot reads the text in Spark's dialect. What goes on to Spark is always the caller's own text, with names of tables
replaced, and never what sqlglot would write. Knows no session and no table.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlglot
from sqlglot import exp, tokens
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from hoodoo.errors import ExpressionError, OptionError
from hoodoo.redact import printable

TokenType: Any = vars(tokens)["TokenType"]
Node = Any
"""A node of sqlglot's tree, or one of its tokens: both have other bases in each of its larger releases."""

CATALOG = "hoodoo"
_BEFORE_ALIASED = ("FROM", "JOIN", ",")
_NAMED = re.compile(rf"\b{CATALOG}\s*\.\s*`([^`]+)`", re.IGNORECASE)
_ESCAPES = re.compile(r"""(?<!\\)(?:\\\\)*\\[^ntr'"\\]""")
_TRAVELS = ("VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME")


class _Spark(Spark):
    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["\\", "'"]  # since Spark 4.0 two quotes within quotes are one


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        text: What the caller wrote, without a semicolon at the end.
        tokens: Its tokens.
        tree: Its tree. None: sqlglot does not know such a statement.
        why: What sqlglot said where there is no tree.
    """

    text: str
    tokens: Sequence[Node]
    tree: Any
    why: str = ""

    @property
    def words(self) -> list[str]:
        """The tokens in capitals, without quotes."""
        return [token.text.upper() for token in self.tokens]

    def after(self, index: int) -> str:
        """Return the text behind the token at an index."""
        return self.text[self.tokens[index].end + 1 :]

    def unlike_texts(self) -> list[str]:
        """Return texts in quotes that sqlglot may read otherwise than Spark."""
        found = []
        for index, token in enumerate(self.tokens):
            if token.token_type == TokenType.STRING:
                said = self.text[token.start : token.end + 1]
                joined = index and self.tokens[index - 1].token_type == TokenType.STRING
                if joined or _ESCAPES.search(said) or said[0] == '"' and "''" in said:
                    found.append(said)
        return found

    def names(self, word: str) -> list[int]:
        """Return the indices of a bare word outside parentheses."""
        depth, found = 0, []
        for index, token in enumerate(self.tokens):
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            bare = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
            if not depth and bare and token.text.upper() == word:
                found.append(index)
        return found


@dataclass(frozen=True)
class Reference:
    """A table of hoodoo in a statement.

    Attributes:
        begin: Where it begins in the text.
        end: Where it ends.
        path: The path of the table.
        node: The table in the tree. None: the statement has no tree.
        as_of: The position that VERSION AS OF or TIMESTAMP AS OF names. None: the newest.
        alias: The name by which the statement qualifies its columns, where it gives it no other. '': none.
    """

    begin: int
    end: int
    path: str
    node: Node | None
    as_of: str | None = None
    alias: str = ""


def read(text: str) -> Statement:
    """Read a statement.

    Args:
        text: The statement, in Spark's SQL.

    Raises:
        OptionError: It is no text, or it is more than one statement.
    """
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"sql takes a statement of Spark SQL as text, got {printable(text)}.", option="text")
    try:
        found = list(_Spark().tokenize(text))
    except TokenError as problem:
        return Statement(text, (), None, why=str(problem))
    while found and found[-1].token_type == TokenType.SEMICOLON:
        found.pop()
    if not found:
        raise OptionError("sql takes a statement of Spark SQL, and the text has only comments.", option="text")
    if any(token.token_type == TokenType.SEMICOLON for token in found):
        raise OptionError("sql takes one statement; run one after the other.", option="text")
    text = text[: found[-1].end + 1]
    tree, why = _parsed(text)
    return Statement(text, found, tree, why)


def references(statement: Statement, names: Mapping[str, str]) -> list[Reference]:
    """Find the tables of hoodoo in a statement, in the order of the text.

    Args:
        statement: The statement.
        names: The paths of tables that have a name in the session, by the name in small letters.
    """
    if statement.tree is None:
        return list(_by_tokens(statement))
    tables = {_start(node): node for node in statement.tree.find_all(exp.Table) if _is_ours(node)}
    found = [replace(one, node=tables[one.begin]) for one in _by_tokens(statement) if one.begin in tables]
    hidden = {cte.alias.lower() for cte in statement.tree.find_all(exp.CTE)}
    for node in statement.tree.find_all(exp.Table):
        if path := path_of(node, names) if not node.db and node.name.lower() not in hidden else None:
            begin, end = _start(node), node.this.meta["end"] + 1
            last = next(index for index, token in enumerate(statement.tokens) if token.end + 1 == end)
            position, end = _position(statement, last, end)
            bare = not node.alias and last > 0 and statement.words[last - 1] in _BEFORE_ALIASED
            plain = bare and not any(node.args.get(name) for name in ("sample", "pivots"))
            found.append(Reference(begin, end, path, node, position, node.name if plain else ""))
    return sorted(found, key=lambda one: one.begin)


def path_of(node: Node, names: Mapping[str, str]) -> str | None:
    """Return the path of the table that a node of a tree names. None: it is no table of hoodoo."""
    if not isinstance(node, exp.Table) or node.catalog:
        return None
    if _is_ours(node):
        return str(node.name)
    return names.get(node.name.lower()) if not node.db and isinstance(node.this, exp.Identifier) else None


def refusal(what: str, instead: str) -> OptionError:
    """Make the error for a statement that `sql` does not carry out."""
    return OptionError(f"hoodoo.sql does not know {what}: {instead}", option="text")


def unreadable(statement: Statement) -> ExpressionError:
    """Make the error for a statement on a table of hoodoo that cannot be read."""
    why = statement.why or "it is no statement that sqlglot knows"
    return ExpressionError(f"Cannot read the statement: {why}", expression=statement.text[:1000])


def replaced(statement: Statement, found: Sequence[Reference], name: Callable[[int], str]) -> str:
    """Return the text as a template of `str.format`, with a field for each table.

    Args:
        statement: The statement.
        found: The tables in it.
        name: The name of the field for the table at an index.
    """
    parts, at = [], 0
    for index, one in enumerate(found):
        parts += [_literal(statement.text[at : one.begin]), "{" + name(index) + "}"]
        parts += [f" AS `{one.alias}`"] if one.alias else []
        at = one.end
    return "".join(parts) + _literal(statement.text[at:])


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _parsed(text: str) -> tuple[Node | None, str]:
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of statements that it does not know, which are Spark's to judge
    try:
        tree = sqlglot.parse_one(text, read=_Spark)
    except (ParseError, TokenError) as problem:
        first = problem.errors[0] if isinstance(problem, ParseError) and problem.errors else {}
        why = str(first.get("description") or problem).rstrip(".")
        place = f" at line {first['line']}, column {first['col']}" if first.get("line") else ""
        return None, f"{why}{place}."
    except RecursionError:
        return None, "It is nested too deeply."
    finally:
        logger.setLevel(level)
    return (None, "") if isinstance(tree, exp.Command) else (tree, "")


def _is_ours(node: Node) -> bool:
    quoted = isinstance(node.this, exp.Identifier) and bool(node.this.args.get("quoted"))
    return quoted and node.db.lower() == CATALOG and not node.catalog


def _start(node: Node) -> int:
    first = node.args.get("db") or node.this
    return int(first.meta.get("start", -1))


def _by_tokens(statement: Statement) -> Iterator[Reference]:
    words = statement.tokens
    if len(words) == 2 and words[1].token_type == TokenType.STRING:  # a command, whose rest is one token
        for match in _NAMED.finditer(statement.text):
            yield Reference(match.start(), match.end(), match[1], None)
        return
    for index, token in enumerate(words[:-2]):
        ours = token.text.lower() == CATALOG and words[index + 1].token_type == TokenType.DOT
        if ours and words[index + 2].token_type == TokenType.IDENTIFIER:
            position, end = _position(statement, index + 2, words[index + 2].end + 1)
            yield Reference(token.start, end, words[index + 2].text, None, position)


def _position(statement: Statement, last: int, end: int) -> tuple[str | None, int]:
    """What VERSION AS OF or TIMESTAMP AS OF behind a table says, and where that ends."""
    following = list(statement.tokens[last + 1 : last + 6])
    if following and following[0].text.upper() == "FOR":
        following = following[1:]
    words = [token.text.upper() for token in following[:3]]
    if len(following) < 4 or words[0] not in _TRAVELS or words[1:] != ["AS", "OF"]:
        return None, end
    value = following[3]
    slot = words[0] == "VERSION" and value.token_type == TokenType.NUMBER
    if value.token_type != TokenType.STRING and not slot:
        raise OptionError(
            f"{words[0]} AS OF {value.text}: a position of a hoodoo table is the number of a slot after VERSION, or a "
            "text, such as a cursor, an instant or the name of a savepoint in quotes; DESCRIBE HISTORY lists them.",
            option="as_of",
        )
    return value.text, value.end + 1
