// Package names writes what a report names, sites, groups and peers, in as many columns as there are. Package words has
// what it is made of.
package names

import (
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// baseName is the file's name without its directories, those of Windows too.
func baseName(file string) string { return file[strings.LastIndexAny(file, `/\`)+1:] }

// maxFile is how many columns a file's name may take: longer ones are made by machines.
const maxFile = 28

// Position is "file.go:12", or "" if not known.
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

// SiteFunc is the function's short name in at most max columns, or "" if not known.
func SiteFunc(s *report.Site, max int) string {
	if s == nil {
		return ""
	}
	// Long names are cut before they are looked at: what is cut off here is far beyond any column.
	f := s.Func
	if len(f) > 1<<12 {
		f = f[len(f)-1<<12:]
	}
	f = words.FuncName(f)
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

// SiteParts returns a site in at most max columns: the function, shortened in its middle as far as need be, and the file's
// name with the line, which is never cut unless it alone is too long. What is not known is "".
func SiteParts(s *report.Site, max int) (fn, pos string) {
	pos = Position(s)
	room := max - termtext.Width(pos) - 1
	if pos == "" {
		room = max
	}
	const shortest = 6 // of a function's name no less than this says anything
	switch {
	case room < shortest:
	case s != nil && s.Does != "":
		// The function's name says less, and is in the JSON.
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

// SiteText writes a site in at most max columns, "" if no place is known.
func SiteText(s *report.Site, max int) string {
	fn, pos := SiteParts(s, max)
	if fn != "" && pos != "" {
		return fn + " " + pos
	}
	return fn + pos
}

// CallerLead is what comes before the line of the service's own code that led to a dependency's.
func CallerLead(c *report.Caller) string {
	if c.OtherGoroutine {
		return "reached from "
	}
	return "called from "
}

// CallerParts says in at most max columns which line of the service's own code led to a dependency's: what comes
// before, the function, and the file's name with the line, all "" where that is not known.
func CallerParts(s *report.Site, max int) (lead, fn, pos string) {
	if s == nil || s.CalledFrom == nil {
		return "", "", ""
	}
	lead = CallerLead(s.CalledFrom)
	fn, pos = SiteParts(s.CalledFrom.Site(), max-len(lead))
	return lead, fn, pos
}

// GroupName is the group's name in at most max columns, in the short form of functions where it is one. Tasks, regions and
// RPC methods have names of their own, in which a slash is no directory.
func GroupName(g *report.Group, max int) string {
	switch g.Kind {
	case report.KindTask, report.KindRegion, report.KindGRPC:
		return termtext.Middle(g.Name, max)
	}
	if strings.Contains(g.Name, " ") {
		return termtext.Middle(g.Name, max)
	}
	if position := Position(g.Entry); position != "" && words.IsClosure(g.Name) && g.Entry.Func == g.Name {
		// A closure's name says where it was made, but its number means nothing to a reader.
		if room := max - termtext.Width(position) - 1; room >= 12 {
			return SiteFunc(&report.Site{Func: g.Name}, room) + " " + position
		}
	}
	return SiteFunc(&report.Site{Func: g.Name}, max)
}

// GoVersion is the Go version that the service of a report was built with: what the recording says of its program, else
// the trace's header, which Go 1.23 and 1.24 write alike. It is "" if neither is known.
func GoVersion(r *report.Report) string {
	if r.Host != nil && r.Host.Facts.Go != "" {
		return strings.TrimPrefix(r.Host.Facts.Go, "go")
	}
	if r.Input.Go == "1.23" {
		return "1.23 or 1.24"
	}
	return r.Input.Go
}

// Pod says which pod of Kubernetes a report is about, "" if it is about none.
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

// PeerProcess names the process that serves what a group waits for.
func PeerProcess(p *report.Peer) string {
	if p.Recording != "" {
		return "the process of " + p.Recording
	}
	return "this process"
}

// PeerNames names the groups that answer.
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

func spentText(p *report.Peer) string {
	if p.Spent == "" {
		return ""
	}
	return " (such requests spent " + termtext.Head(p.Spent, 200) + ")"
}

func asLongText(p *report.Peer) string {
	if p.AsLong {
		return " that is as long"
	}
	return ""
}

// DescribePeer says which group answers what requests wait for over the network, how that is known, and on what the waits went.
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
