package gobinary

import (
	"debug/dwarf"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Layout has the byte offsets of fields in the runtime's structures. A field that a release does not have is -1.
type Layout struct {
	G struct {
		M, Status, GoID, SchedLink, SchedPC, SchedBP, SyscallPC, SyscallBP, StartPC, CoroArg int64
	}
	M struct {
		Curg int64
	}
	Coro struct {
		G int64
	}
	ModuleData struct {
		Text, GoFunc int64
	}
	// WrapperID is the function ID of wrappers that the compiler created, which stacks leave out.
	WrapperID int64
	// BlockReasons are the texts of the runtime's traceBlockReason.
	BlockReasons []string
}

// field is a column of the table.
type field struct {
	name  string
	value func(*Layout) *int64
	// isOptional means that a release may lack the field.
	isOptional bool
}

var fields = []field{
	{"g.m", func(l *Layout) *int64 { return &l.G.M }, false},
	{"g.atomicstatus", func(l *Layout) *int64 { return &l.G.Status }, false},
	{"g.goid", func(l *Layout) *int64 { return &l.G.GoID }, false},
	{"g.schedlink", func(l *Layout) *int64 { return &l.G.SchedLink }, false},
	{"g.sched.pc", func(l *Layout) *int64 { return &l.G.SchedPC }, false},
	{"g.sched.bp", func(l *Layout) *int64 { return &l.G.SchedBP }, false},
	{"g.syscallpc", func(l *Layout) *int64 { return &l.G.SyscallPC }, false},
	{"g.syscallbp", func(l *Layout) *int64 { return &l.G.SyscallBP }, true},
	{"g.startpc", func(l *Layout) *int64 { return &l.G.StartPC }, false},
	{"g.coroarg", func(l *Layout) *int64 { return &l.G.CoroArg }, true},
	{"m.curg", func(l *Layout) *int64 { return &l.M.Curg }, false},
	{"coro.gp", func(l *Layout) *int64 { return &l.Coro.G }, true},
	{"moduledata.text", func(l *Layout) *int64 { return &l.ModuleData.Text }, false},
	{"moduledata.gofunc", func(l *Layout) *int64 { return &l.ModuleData.GoFunc }, false},
	{"abi.FuncIDWrapper", func(l *Layout) *int64 { return &l.WrapperID }, false},
}

// LayoutFields returns the names of the columns of the table of layouts, such as "g.sched.pc", without the first (version) and last (block reasons)
// one.
func LayoutFields() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// layoutTable is written by the program in the directory offsets.
//
//go:embed offsets.tsv
var layoutTable string

// knownLayouts parses the table and returns its rows by minor version, such as "1.26".
func knownLayouts() map[string]*Layout {
	rows := map[string]*Layout{}
	for line := range strings.Lines(layoutTable) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if cells[0] == "go" || len(cells) != len(fields)+2 {
			continue
		}
		l := &Layout{BlockReasons: strings.Split(cells[len(cells)-1], "|")}
		for i, f := range fields {
			*f.value(l), _ = strconv.ParseInt(cells[i+1], 10, 64)
		}
		rows[cells[0]] = l
	}
	return rows
}

// KnownVersions returns the minor versions of Go whose layout is known, such as "1.26", in ascending order.
func KnownVersions() []string {
	var names []string
	for name := range knownLayouts() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// minorVersion returns "1.26" for "go1.26.8 X:experiment", "go1.26rc1" or "devel go1.26-abc". For other text the result is no
// version, but not empty either.
func minorVersion(version string) string {
	version, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(version, "devel "), "go"), " ")
	major, rest, _ := strings.Cut(version, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	return major + "." + rest
}

// layoutOf returns the layout for a version of Go: from the table, else, from Go 1.22 on, from debug information, with the block reasons of the
// newest known version. debugInfo is called only in the second case.
func layoutOf(version string, debugInfo func() (*dwarf.Data, error)) (*Layout, error) {
	rows := knownLayouts()
	if l := rows[minorVersion(version)]; l != nil {
		return l, nil
	}
	versions := KnownVersions()
	unknown := fmt.Errorf("the program was built by %s, whose runtime is not known here (known: Go %s to %s)", version, versions[0], versions[len(versions)-1])
	if n, err := strconv.Atoi(strings.TrimPrefix(minorVersion(version), "1.")); err != nil || n < 22 {
		return nil, unknown
	}
	data, err := debugInfo()
	if err != nil {
		return nil, fmt.Errorf("%w, and it has no debug information that describes it: use a newer whylate", unknown)
	}
	newest := rows[versions[len(versions)-1]]
	l := &Layout{BlockReasons: newest.BlockReasons, WrapperID: -1}
	if err := l.readDWARF(data); err != nil {
		return nil, fmt.Errorf("%w, and its debug information does not describe it (%w): use a newer whylate", unknown, err)
	}
	return l, nil
}

// readDWARF sets the offsets of fields by debug information: -1 for an optional field that is missing; any other missing field is an error. Constants
// are not in it and stay unchanged.
func (l *Layout) readDWARF(data *dwarf.Data) error {
	structures := map[string]*dwarf.StructType{}
	r := data.Reader()
	for {
		e, err := r.Next()
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		if e.Tag != dwarf.TagStructType || !strings.HasPrefix(name, "runtime.") {
			if e.Tag != dwarf.TagCompileUnit {
				r.SkipChildren()
			}
			continue
		}
		r.SkipChildren()
		switch name {
		case "runtime.g", "runtime.m", "runtime.coro", "runtime.moduledata":
			t, err := data.Type(e.Offset)
			if err != nil {
				return err
			}
			structures[strings.TrimPrefix(name, "runtime.")], _ = t.(*dwarf.StructType)
		}
	}
	for _, f := range fields {
		path := strings.Split(f.name, ".")
		if path[0] == "abi" {
			continue
		}
		offset, ok := fieldOffset(structures[path[0]], path[1:])
		if !ok && !f.isOptional {
			return fmt.Errorf("no field %s", f.name)
		}
		if !ok {
			offset = -1
		}
		*f.value(l) = offset
	}
	return nil
}

// fieldOffset returns the offset in bytes of a field within t; path names it and the structures that it is in, outermost first. It is false if one of
// them is missing.
func fieldOffset(t *dwarf.StructType, path []string) (offset int64, ok bool) {
	if t == nil {
		return 0, false
	}
	for _, f := range t.Field {
		if f.Name != path[0] {
			continue
		}
		if len(path) == 1 {
			return f.ByteOffset, true
		}
		inner := f.Type
		for {
			named, ok := inner.(*dwarf.TypedefType)
			if !ok {
				break
			}
			inner = named.Type
		}
		structure, _ := inner.(*dwarf.StructType)
		offset, ok = fieldOffset(structure, path[1:])
		return f.ByteOffset + offset, ok
	}
	return 0, false
}
