"""Records a command in a terminal of 100 columns and writes an SVG that plays it once: its lines appear when the command wrote them.

usage: .ci/terminal.py FILE.svg COMMAND [ARGUMENT...]
"""
import fcntl
import html
import os
import pty
import re
import struct
import sys
import termios
import time

COLUMNS, CHARACTER, LINE, MARGIN = 100, 7.2, 17, 14
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#d9a441", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea", "90": "#8b949e", "2": "#8b949e"}


def play(command):
    """Returns what the command wrote, in parts with their times."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    start, parts = time.monotonic(), []
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:  # the terminal is closed
            data = b""
        if not data:
            break
        at = int(4 * (time.monotonic() - start)) / 4  # four pictures a second are enough
        if parts and parts[-1][0] == at:
            parts[-1] = (at, parts[-1][1] + data)
        else:
            parts.append((at, data))
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        sys.exit("%s failed" % command[0])
    return [(at, data.decode("utf-8", "replace")) for at, data in parts]


def states(parts):
    """Yields row, text, and the times from and to which a row of the terminal shows it; to is None for what stays."""
    rows, row, column, style = [[]], 0, 0, ""
    shown = {}
    for at, text in parts:
        changed = set()
        for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            if token == "\n":
                row, column = row + 1, 0
                if row == len(rows):
                    rows.append([])
            elif token == "\r":
                column = 0
            elif token.startswith("\x1b["):
                value, kind = token[2:-1], token[-1]
                if kind == "m":
                    style = "" if value in ("", "0") else (style + ";" + value).strip(";")
                elif kind in "JK":
                    del rows[row][0 if value == "2" else column:]
                    if kind == "J":
                        changed.update(range(row + 1, len(rows)))
                        del rows[row + 1:]
                elif kind == "A":
                    row = max(0, row - int(value or 1))
                changed.add(row)
            else:
                line = rows[row]
                line.extend([(" ", "")] * (column - len(line)))
                line[column:column + len(token)] = [(c, style) for c in token]
                column += len(token)
                changed.add(row)
        for r in sorted(changed):
            now = tuple(rows[r]) if r < len(rows) else ()
            old = shown.get(r)
            if old and old[0] == now:
                continue
            if old and old[0]:
                yield r, old[0], old[1], at
            shown[r] = (now, at)
    for r, (line, at) in shown.items():
        if line:
            yield r, line, at, None


def spans(line):
    """Writes a line of characters with styles as text of an SVG."""
    out, k = [], 0
    while k < len(line):
        end = k
        while end < len(line) and line[end][1] == line[k][1]:
            end += 1
        text = html.escape("".join(c for c, _ in line[k:end]).replace(" ", "\u00a0"))
        codes = line[k][1].split(";")
        attributes = "".join(' fill="%s"' % COLOURS[c] for c in codes if c in COLOURS)[:16] + (' font-weight="bold"' if "1" in codes else "")
        out.append("<tspan%s>%s</tspan>" % (attributes, text) if attributes else text)
        k = end
    return "".join(out).rstrip()


def main():
    file, command = sys.argv[1], sys.argv[2:]
    prompt = "$ " + " ".join([os.path.basename(command[0])] + command[1:])
    drawn = [(0, spans([(c, "1") for c in prompt]), 0, None)]
    drawn += [(row + 1, spans(line), begin, end) for row, line, begin, end in states(play(command))]
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), (max(d[0] for d in drawn) + 1) * LINE + 2 * MARGIN
    with open(file, "w", encoding="utf-8") as out:
        out.write('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="12" fill="#e6edf3">\n' % (width, height, width, height))
        out.write('<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n')
        for row, text, begin, end in drawn:
            if not text:
                continue
            times = "" if begin == 0 else '<set attributeName="display" to="none" begin="0s" end="%.2fs"/>' % begin
            if end is not None:
                times += '<set attributeName="display" to="none" begin="%.2fs"/>' % end
            out.write('<text x="%d" y="%d">%s%s</text>\n' % (MARGIN, MARGIN + LINE * (row + 1) - 5, text, times))
        out.write("</svg>\n")


main()
