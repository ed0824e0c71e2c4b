// Package names writes the sites, groups and peers of a report in a given number of columns. It uses the formats of package
// words.
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

// GroupName returns the group's name in at most max columns, in the short form if it is a function, with its service, of several. In names of tasks,
// regions and RPC methods, a slash does not separate directories.
func GroupName(g *report.Group, max int) string {
	if g.Service != "" {
		of := *g
		of.Service = ""
		suffix := " of " + termtext.Head(g.Service, 40)
		if room := max - termtext.Width(suffix); room >= 12 {
			return GroupName(&of, room) + suffix
		}
		return GroupName(&of, max)
	}
	switch g.Kind {
	case report.KindTask, report.KindRegion, report.KindGRPC:
		return termtext.Middle(g.Name, max)
	}
	if strings.Contains(g.Name, " ") {
		return termtext.Middle(g.Name, max)
	}
	if position := Position(g.Entry); position != "" && words.IsClosure(g.Name) && g.Entry.Func == g.Name {
		// A closure's name contains the function that created it, but its number has no meaning for a reader.
		if room := max - termtext.Width(position) - 1; room >= 12 {
			return SiteFunc(&report.Site{Func: g.Name}, room) + " " + position
		}
	}
	return SiteFunc(&report.Site{Func: g.Name}, max)
}

// GoVersion returns the Go version with which the service was built: the version of the program in the recording, else the
// version in the trace's header, which is the same for Go 1.23 and 1.24. It is "" if neither is known.
func GoVersion(r *report.Report) string {
	if r.Host != nil && r.Host.Facts.Go != "" {
		return strings.TrimPrefix(r.Host.Facts.Go, "go")
	}
	if r.Input.Go == "1.23" {
		return "1.23 or 1.24"
	}
	return r.Input.Go
}

// Pod describes the Kubernetes pod of a report in one line, with its node, image and limits if known; "" if there is none. Its texts are not escaped.
func Pod(r *report.Report) string {
	service := r.Input.Service
	pod := service["k8s.pod.name"]
	if pod == "" {
		return ""
	}
	out := "pod " + pod
	for _, part := range [][2]string{{" in namespace ", "k8s.namespace.name"}, {" on node ", "k8s.node.name"}, {" · container ", "k8s.container.name"},
		{" · image ", "container.image.name"}, {" · CPU limit ", "k8s.container.cpu.limit"}, {" · memory limit ", "k8s.container.memory.limit"}} {
		if v := service[part[1]]; v != "" {
			out += part[0] + v
		}
	}
	return out
}

// PeerProcess names the process of a peer: by its recording, or as "this process".
func PeerProcess(p *report.Peer) string {
	if p.Recording != "" {
		return "the process of " + p.Recording
	}
	return "this process"
}

// PeerNames returns the short names of a peer's groups, joined by "or".
func PeerNames(p *report.Peer) string {
	s := ""
	for i, n := range p.GroupNames() {
		if i > 0 {
			s += " or "
		}
		s += words.FuncName(n)
	}
	return s
}

// spentText returns a clause, with a space before it, about the cause on which such requests of the peer spent their time; "" if
// it is not known.
func spentText(p *report.Peer) string {
	if p.Spent == "" {
		return ""
	}
	return " (such requests spent " + termtext.Head(p.Spent, 200) + ")"
}

// asLongText returns a clause, with a space before it, if only requests as long as the waits were counted; else "".
func asLongText(p *report.Peer) string {
	if p.AsLong {
		return " that is as long"
	}
	return ""
}

// DescribePeer returns the rest of a sentence about the group that answers requests' waits for the network, from its verb on ("is
// this process: ..."): the evidence, and the parts of the waits.
func DescribePeer(p *report.Peer) string {
	sure := "is "
	if p.Confidence < 0.7 {
		sure = "may be "
	}
	s := sure + PeerProcess(p) + ": " + words.Number(int64(p.Held)) + " of " + words.Count(p.Waits, "wait", "waits") + " for the network contain one request of " + PeerNames(p) + asLongText(p) + " (by chance: " +
		words.PercentOr0(p.ByChance) + "). A wait takes " + words.Duration(p.WaitNS) + "; the request in it takes " + words.Duration(p.ServedNS) + spentText(p)
	if p.ThereNS != nil && p.BackNS != nil {
		s += "; it begins " + words.Duration(*p.ThereNS) + " after the wait"
		if p.UnseenNS != nil && *p.UnseenNS > 0 {
			s += " (up to " + words.Duration(*p.UnseenNS) + " of that unread at the server)"
		}
		s += " and ends " + words.Duration(*p.BackNS) + " before it"
	}
	if p.LateNS > 0 {
		s += ", for " + words.Duration(p.LateNS) + " of which the waiting goroutine had no P"
	}
	return s
}
