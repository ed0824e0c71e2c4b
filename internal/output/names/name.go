// Package names writes the sites, groups and peers of a report in a given number of columns. It uses the formats of package
// words.
package names

import (
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

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
	switch isSpaced := strings.Contains(g.Name, " "); {
	case isSpaced && !g.Named && g.Kind.IsCall() && termtext.Width(g.Name) > max:
		return termtext.Middle("unnamed "+g.Kind.Protocol()+" handlers", max)
	case isSpaced:
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
