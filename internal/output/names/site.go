package names

import (
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// baseName returns the file's name without its directories, also for paths of Windows.
func baseName(file string) string { return file[strings.LastIndexAny(file, `/\`)+1:] }

// maxFile is the largest width of a file's name: longer names are generated.
const maxFile = 28

// Position returns "file.go:12", or "" if it is unknown.
func Position(s *report.Site) string {
	if s == nil || s.File == "" {
		return ""
	}
	p := termtext.Middle(baseName(s.File), maxFile)
	if s.Line > 0 {
		p += ":" + strconv.Itoa(s.Line)
	}
	return p
}

// SiteFunc returns the function's short name in at most max columns, or "" if it is unknown.
func SiteFunc(s *report.Site, max int) string {
	if s == nil {
		return ""
	}
	// Long names are cut before they are parsed: no column shows the part that is cut off.
	f := s.Func
	if len(f) > 1<<12 {
		f = f[len(f)-1<<12:]
	}
	f = words.FuncName(f)
	// The package is removed first: the name of the file, which is next to it, often contains it.
	if termtext.Width(termtext.Middle(f, max+1)) > max {
		f = withoutPackage(f)
	}
	return termtext.Middle(f, max)
}

// withoutPackage removes the package from a function's short name.
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

// SiteParts returns a site in at most max columns: the function, shortened in its middle if necessary, and the file's name
// with the line, which is cut only if it is too long alone. Unknown parts are "".
func SiteParts(s *report.Site, max int) (fn, pos string) {
	pos = Position(s)
	room := max - termtext.Width(pos) - 1
	if pos == "" {
		room = max
	}
	const shortest = 6 // a function's name in fewer columns has no meaning
	switch {
	case room < shortest:
	case s != nil && s.Does != "":
		// The description is more useful than the function's name, which the JSON has.
		if fn = stdlib.Package(s.Func) + ", " + s.Does; termtext.Width(fn) > room {
			fn = termtext.Middle(s.Does, room)
		}
	default:
		fn = SiteFunc(s, room)
	}
	if fn == "" {
		pos = termtext.Middle(pos, max)
	}
	return fn, pos
}

// SiteText returns a site in at most max columns, "" if it is unknown.
func SiteText(s *report.Site, max int) string {
	fn, pos := SiteParts(s, max)
	if fn != "" && pos != "" {
		return fn + " " + pos
	}
	return fn + pos
}

// LineForReaders returns the service's own line that awaits a site in an internal package, such as gRPC's reader of a connection: its users
// do not know that name. It returns s if s is no such site.
func LineForReaders(s *report.Site) *report.Site {
	if s != nil && s.CalledFrom.Awaits() && strings.Contains(s.Func, "/internal/") {
		return s.OwnLine()
	}
	return s
}

// CallerLead returns the words before the caller of a dependency's site, such as "called from ", with the space, by how the caller called it.
func CallerLead(c *report.Caller) string {
	switch {
	case c.OtherGoroutine:
		return "reached from "
	case c.Awaits():
		return "awaited at "
	}
	return "called from "
}

// CallerParts returns the caller of a dependency's site in at most max columns: the words before it, the function, and the
// file's name with the line. All are "" if the caller is unknown.
func CallerParts(s *report.Site, max int) (lead, fn, pos string) {
	if s == nil || s.CalledFrom == nil {
		return "", "", ""
	}
	lead = CallerLead(s.CalledFrom)
	fn, pos = SiteParts(s.CalledFrom.Site(), max-len(lead))
	return lead, fn, pos
}
