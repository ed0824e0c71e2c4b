"""Runs docs/sql.md in SQLite and DuckDB, and compares every row.

usage: check.py WHYLATE TRACE          needs sqlite3 and the PyPI package duckdb
"""
import pathlib, re, subprocess, sys, tempfile

import duckdb

whylate, trace = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:])
page = (pathlib.Path(__file__).resolve().parents[2] / "docs/sql.md").read_text()
tables, *questions = re.findall(r"```sql\n(.*?)```", page, re.S)
commands = [line.strip() for line in page.replace("\\\n", "").splitlines() if line.startswith("    ")]
assert len(questions) == 10, len(questions)

with tempfile.TemporaryDirectory() as d:
    for c in commands:
        if c.startswith(("whylate", "sqlite3")):
            subprocess.run(["bash", "-ec", f'whylate() {{ "{whylate}" "$@"; }}\n' + c.replace("x.trace", f"'{trace}'")], cwd=d, check=True)
    duck = duckdb.connect()
    duck.execute(f"set file_search_path = '{d}'")
    for c in commands:
        if c.startswith("create"):
            duck.execute(c)
    duck.execute(tables)
    import sqlite3

    lite = sqlite3.connect(f"{d}/x.db")
    lite.executescript(tables)
    rows = 0
    for i, q in enumerate(questions, 1):
        # SQLite's CSV has empty texts where DuckDB's has NULL, and texts where DuckDB's has numbers.
        plain = lambda answer: [tuple("" if v is None else str(v) for v in row) for row in answer]
        a, b = plain(lite.execute(q).fetchall()), plain(duck.execute(q).fetchall())
        if a != b:
            sys.exit(f"question {i}: SQLite says {a[:5]}, DuckDB {b[:5]}")
        print(f"question {i}: {len(a)} rows, the same")
        rows += len(a)
    total = lite.execute("select sum(cast(latency_ns as bigint)) from requests").fetchone()[0]
    causes = sum(int(v) for _, v in lite.execute(questions[1]))
    if not rows or total != causes:
        sys.exit(f"{rows} rows; latencies add up to {total} ns, causes to {causes} ns")
