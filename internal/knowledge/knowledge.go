// Package knowledge is what the engine knows about functions of the runtime, the standard library and other libraries.
// The knowledge is data: functions.tsv gives functions their roles, and the engine decides by roles, never by names.
//
// # How to add a library
//
// Add lines to functions.tsv, with tabs between the columns:
//
//	pattern                                      roles                source       note
//	github.com/juju/ratelimit.…                  rate-limiter         v1.0.2
//	github.com/redis/go-redis/v9.cmdable.BRPop…  fetch                v9.23.0
//	internal/poll.(*FD).Accept                   client-wait -poller  go1.22-1.26  a client that connects
//
// The columns are:
//
//   - pattern: the name of functions as the runtime writes it in stacks; "…" stands for any text, also for none.
//   - roles: separated by spaces. roles.tsv has the meaning of each. A function has the roles of all lines that match it,
//     in any order, except for those that a line takes away ("-poller").
//   - source: the versions of the library whose source was read.
//   - note: a reason that the source does not show. It may be missing.
//
// A test names the line of an unknown role. Show the answer that changes: with a trace of a few calls, as in
// libraries_test.go, or with a program in lab/field and its recording. What reports advise about a library's pool, peer and
// pauses is in internal/explain/finding/rules/libraries.txt.
//
// If no role fits, add one to roles.tsv and, at the same place, to roles.go, and use it in the engine.
//
// A few roles also follow from the form of a name: see nameforms.go. activities.tsv describes in words what functions do.
package knowledge

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
)

//go:embed functions.tsv
var functionsText string

// functions returns the table. A line that cannot be read is a fault of the program, which its tests find.
var functions = sync.OnceValue(func() *table {
	lines, err := parseLines(functionsText)
	if err != nil {
		panic(err)
	}
	return newTable(lines)
})

// rolesByFunction has the roles of functions that were looked up, at most maxFunctions.
var rolesByFunction struct {
	sync.RWMutex
	roles map[string]Roles
}

const maxFunctions = 1 << 16

// Of returns the roles of a function, by its name as in stacks. To search the table takes about a microsecond, so the roles are kept; an
// Index needs no name to find them.
func Of(fn string) Roles {
	rolesByFunction.RLock()
	found, ok := rolesByFunction.roles[fn]
	if rolesByFunction.RUnlock(); !ok {
		found = functions().applyTo(fn, formRoles(fn))
		rolesByFunction.Lock()
		if len(rolesByFunction.roles)%maxFunctions == 0 {
			rolesByFunction.roles = make(map[string]Roles)
		}
		rolesByFunction.roles[strings.Clone(fn)] = found
		rolesByFunction.Unlock()
	}
	return found
}

// Has reports whether a function, named as in stacks, has a role.
func Has(fn string, role Role) bool { return Of(fn).Has(role) }

// OpensConnection reports whether a function is part of opening a connection: it looks a name up, dials or makes a handshake.
func OpensConnection(fn string) bool {
	return slices.ContainsFunc([]Role{DNS, Dial, Connecting, TLSHandshake}, func(role Role) bool { return Has(fn, role) })
}

// Named returns, sorted, the functions to which the table gives a role by their full name, not by a pattern with "…".
func Named(role Role) (list []string) {
	for fn, l := range functions().exact {
		if l.add.Has(role) {
			list = append(list, fn)
		}
	}
	slices.Sort(list)
	return list
}

// An Index caches the roles of functions by the id of their name. Only one goroutine may use it at a time.
type Index[ID ~int32 | ~uint32] struct {
	name  func(ID) string
	roles []Roles
}

// NewIndex returns an Index of the functions that name returns.
func NewIndex[ID ~int32 | ~uint32](name func(ID) string) Index[ID] { return Index[ID]{name: name} }

// Of returns the roles of the function whose name has an id. The first call for an id searches the table, and others are cheap.
func (x *Index[ID]) Of(id ID) Roles {
	if int(id) < len(x.roles) {
		if found := x.roles[id]; found.Has(resolved) {
			return found
		}
	}
	return x.find(id)
}

// find returns the roles of a function from the table, and stores them for Of.
func (x *Index[ID]) find(id ID) Roles {
	if n := int(id) + 1 - len(x.roles); n > 0 {
		x.roles = append(x.roles, make([]Roles, n)...)
	}
	x.roles[id] = Of(x.name(id))
	return x.roles[id]
}

// A table finds the lines that match a name. Patterns with "…" are grouped by the text before the first of them.
type table struct {
	exact  map[string]line
	groups []group // ordered by prefix
}

// A line is what one line of the table says of a function.
type line struct {
	pattern     string
	parts       []string // the pattern after the prefix, without "…"
	add, remove Roles
}

// A group has the lines with one prefix.
type group struct {
	prefix  string
	shorter int // index of the group with the longest prefix that is a prefix of this one; -1: none
	lines   []line
}

// applyTo returns found with the roles that all lines that match a function's name add, and without those that they remove. Removal wins over
// addition, whatever the order of the lines.
func (t *table) applyTo(fn string, found Roles) Roles {
	exact := t.exact[fn]
	found, removed := found.Union(exact.add), exact.remove
	// All prefixes of the name precede it in the order, and are prefixes of each other, and of the last one that
	// precedes the name.
	i, _ := slices.BinarySearchFunc(t.groups, fn, func(g group, fn string) int {
		if g.prefix <= fn {
			return -1
		}
		return 1
	})
	for i--; i >= 0; i = t.groups[i].shorter {
		rest, ok := strings.CutPrefix(fn, t.groups[i].prefix)
		if !ok {
			continue
		}
		for k := range t.groups[i].lines {
			if l := &t.groups[i].lines[k]; l.matches(rest) {
				found, removed = found.Union(l.add), removed.Union(l.remove)
			}
		}
	}
	return found.Minus(removed)
}

// matches reports whether rest, a name without the pattern's prefix, fits the pattern's other parts in their order. It compares
// the end first, because most names differ there.
func (l *line) matches(rest string) bool {
	last := len(l.parts) - 1
	ok := strings.HasSuffix(rest, l.parts[last])
	for i := 0; i < last && ok; i++ {
		_, rest, ok = strings.Cut(rest, l.parts[i])
	}
	return ok && strings.HasSuffix(rest, l.parts[last])
}

// newTable returns a table of lines: exact names by name, patterns sorted by the text before their first "…".
func newTable(lines []line) *table {
	t := &table{exact: make(map[string]line)}
	byPrefix := make(map[string][]line)
	for _, l := range lines {
		if prefix, _, isPattern := strings.Cut(l.pattern, "…"); isPattern {
			byPrefix[prefix] = append(byPrefix[prefix], l)
		} else {
			t.exact[l.pattern] = l
		}
	}
	for prefix, list := range byPrefix {
		t.groups = append(t.groups, group{prefix: prefix, lines: list})
	}
	slices.SortFunc(t.groups, func(a, b group) int { return cmp.Compare(a.prefix, b.prefix) })
	for i := range t.groups {
		shorter := i - 1
		for shorter >= 0 && !strings.HasPrefix(t.groups[i].prefix, t.groups[shorter].prefix) {
			shorter = t.groups[shorter].shorter
		}
		t.groups[i].shorter = shorter
	}
	return t
}

// parseLines reads the lines of functions.tsv. The error names each line that cannot be read, and patterns that have two lines.
func parseLines(text string) (lines []line, err error) {
	seen := make(map[string]bool)
	for number, columns := range rows(text) {
		l, lineErr := parseLine(columns)
		if seen[l.pattern] {
			lineErr = errors.Join(lineErr, errors.New("the pattern has two lines"))
		}
		if lineErr != nil {
			err = errors.Join(err, fmt.Errorf("line %d: %s: %w", number, l.pattern, lineErr))
		}
		seen[l.pattern] = true
		lines = append(lines, l)
	}
	return lines, err
}

// parseLine reads the columns of a line: pattern, roles, source and, perhaps, a note.
func parseLine(columns []string) (line, error) {
	l := line{pattern: columns[0], parts: strings.Split(columns[0], "…")[1:]}
	if len(columns) < 3 || len(columns) > 4 || slices.Contains(columns, "") {
		return l, errors.New("want pattern, roles, source and, perhaps, a note, with tabs between them")
	}
	for word := range strings.FieldsSeq(columns[1]) {
		name, isRemoved := strings.CutPrefix(word, "-")
		role, ok := roleOf(name)
		switch {
		case !ok:
			return l, fmt.Errorf("unknown role %q", name)
		case isRemoved:
			l.remove = l.remove.Union(SetOf(role))
		default:
			l.add = l.add.Union(SetOf(role))
		}
	}
	return l, nil
}

// rows iterates over the line numbers (from 1) and tab-separated columns of a table, without empty lines and those that begin
// with #.
func rows(text string) iter.Seq2[int, []string] {
	return func(yield func(int, []string) bool) {
		number := 0
		for row := range strings.Lines(text) {
			number++
			if row = strings.TrimSuffix(row, "\n"); row != "" && row[0] != '#' && !yield(number, strings.Split(row, "\t")) {
				return
			}
		}
	}
}
