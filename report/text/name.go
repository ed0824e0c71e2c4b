package text

import (
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/termtext"
	"github.com/whylate/whylate/report"
)

// shortFunc drops the directories of a function's package: what is left says which function it is to somebody who knows
// the program. The last directory stays if the package's name alone would be a version, as in bar/v2.F.
func shortFunc(f string) string {
	head := f
	if i := strings.IndexAny(f, "[("); i >= 0 {
		head = f[:i] // type arguments and receivers have slashes of their own
	}
	at := strings.LastIndexByte(head, '/') + 1
	if at > 0 && isVersion(head[at:]) {
		at = strings.LastIndexByte(head[:at-1], '/') + 1
	}
	// The linker writes dots in the last directory's name so: gopkg.in/yaml%2ev3.
	return strings.ReplaceAll(f[at:], "%2e", ".")
}

// isVersion reports whether a package's qualified name begins with a major version, "v2.".
func isVersion(s string) bool {
	v, _, ok := strings.Cut(s, ".")
	if !ok || len(v) < 2 || v[0] != 'v' {
		return false
	}
	_, err := strconv.ParseUint(v[1:], 10, 32)
	return err == nil
}

// baseName is the file's name without its directories, those of Windows too.
func baseName(file string) string { return file[strings.LastIndexAny(file, `/\`)+1:] }

// maxFile is how many columns a file's name may take: longer ones are made by machines.
const maxFile = 28

// position is "file.go:12", or "" if not known.
func position(s *report.Site) string {
	if s == nil || s.File == "" {
		return ""
	}
	p := termtext.Middle(baseName(s.File), maxFile)
	if s.Line > 0 {
		p += ":" + strconv.Itoa(s.Line)
	}
	return p
}

// funcName is the function's short name in at most max columns, or "" if not known.
func funcName(s *report.Site, max int) string {
	if s == nil {
		return ""
	}
	// Long names are cut before they are looked at: what is cut off here is far beyond any column.
	f := s.Func
	if len(f) > 1<<12 {
		f = f[len(f)-1<<12:]
	}
	f = shortFunc(f)
	// The package goes first: the file's name beside it often says as much.
	if termtext.Width(termtext.Middle(f, max+1)) > max {
		f = withoutPackage(f)
	}
	return termtext.Middle(f, max)
}

// withoutPackage drops the package from a function's short name.
func withoutPackage(f string) string {
	head := f
	if i := strings.IndexByte(head, '['); i >= 0 {
		head = f[:i]
	}
	i := strings.IndexByte(head, '.')
	if i < 0 || i+1 == len(f) {
		return f
	}
	return f[i+1:]
}

// place writes a site in at most max columns: the function, shortened in its middle as far as need be, and the file's
// name with the line, which is never cut unless it alone is too long.
func place(s *report.Site, max int) []span {
	pos := position(s)
	room := max - termtext.Width(pos) - 1
	if pos == "" {
		room = max
	}
	const shortest = 6 // of a function's name no less than this says anything
	f := ""
	if room >= shortest {
		f = funcName(s, room)
	}
	switch {
	case f == "" && pos == "":
		return nil
	case f == "":
		return []span{{cyan, termtext.Middle(pos, max)}}
	case pos == "":
		return []span{{plain, f}}
	}
	return []span{{plain, f + " "}, {cyan, pos}}
}

// Place writes a site as the report does, the function's short name and the file's with the line, in at most max columns.
// It is "" if no place is known.
func Place(s *report.Site, max int) string {
	var b strings.Builder
	for _, sp := range place(s, max) {
		b.WriteString(sp.text)
	}
	return b.String()
}

// FuncName writes a function's name without the directories of its package.
func FuncName(f string) string { return shortFunc(f) }
