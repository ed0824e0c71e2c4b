// Lines counts the Go code of this repository by package and writes the counts into the table of docs/internals/inventory.md:
//
//	go -C tools run ./lines
//
// It counts all lines, comments and blank ones included, of files that git tracks outside of lab, stories and testdata. What
// a user gets from a package is written manually, in the table itself: a row keeps its text, and a new package gets an empty one.
package main

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	module = "github.com/whylate/whylate/"
	page   = "docs/internals/inventory.md"
)

// A row is a package: its lines without and with tests, and how many other packages import it.
type row struct {
	dir           string
	lines, tests  int
	before, users string
	imports       map[string]bool
	importedBy    int
}

func main() {
	log.SetFlags(0)
	if err := os.Chdir(".."); err != nil { // from tools, which has a go.mod of its own
		log.Fatal(err)
	}
	rows, err := count()
	if err != nil {
		log.Fatal(err)
	}
	old, err := os.ReadFile(page)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(page, []byte(fill(string(old), rows)), 0o644); err != nil {
		log.Fatal(err)
	}
}

func count() (map[string]*row, error) {
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files: %w", err)
	}
	rows := map[string]*row{}
	for _, name := range strings.Fields(string(out)) {
		dir := path.Dir(name)
		if strings.HasPrefix(name, "lab/") || strings.HasPrefix(name, "stories/") || strings.Contains(name, "/testdata/") {
			continue
		}
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		} else if err != nil {
			return nil, err
		}
		r := rows[dir]
		if r == nil {
			r = &row{dir: dir, imports: map[string]bool{}}
			rows[dir] = r
		}
		if n := bytes.Count(text, []byte("\n")); strings.HasSuffix(name, "_test.go") {
			r.tests += n
			continue
		} else {
			r.lines += n
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return nil, err
		}
		for _, i := range file.Imports {
			name, _ := strconv.Unquote(i.Path.Value)
			r.imports[strings.TrimPrefix(name, module)] = true
		}
	}
	for _, r := range rows {
		for dir := range r.imports {
			if dir == strings.TrimSuffix(module, "/") {
				dir = "."
			}
			if to := rows[dir]; to != nil {
				to.importedBy++
			}
		}
	}
	return rows, nil
}

// fill returns the page with the rows of its table counted again, the largest first.
func fill(old string, rows map[string]*row) string {
	const head = "| package | lines | tests | before | imported by | what a user gets from it |\n|---|---|---|---|---|---|\n"
	before, rest, _ := strings.Cut(old, head)
	table, after, _ := strings.Cut(rest, "\n\n")
	for line := range strings.SplitSeq(table, "\n") {
		if cell := strings.Split(line, " | "); len(cell) == 6 {
			if r := rows[strings.Trim(cell[0], "| `")]; r != nil {
				r.before, r.users = cell[3], strings.TrimSuffix(cell[5], " |")
			}
		}
	}
	var b strings.Builder
	b.WriteString(before + head)
	sum := row{}
	for _, r := range slices.SortedFunc(maps.Values(rows), func(a, b *row) int { return b.lines + b.tests - a.lines - a.tests }) {
		fmt.Fprintf(&b, "| `%s` | %d | %d | %s | %d | %s |\n", r.dir, r.lines, r.tests, r.before, r.importedBy, r.users)
		sum.lines, sum.tests = sum.lines+r.lines, sum.tests+r.tests
	}
	fmt.Fprintf(&b, "| all | %d | %d | | | |\n\n%s", sum.lines, sum.tests, after)
	return b.String()
}
