package difftext

import (
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

// PageOptions returns the options of the page that shows a diff: that of the later report, next to the earlier one.
func PageOptions(d *compare.Diff, before *report.Report) html.Options {
	opts := html.Options{Before: before, Judged: true}
	for i := range d.Groups {
		if d.Groups[i].Changed {
			opts.Changed = append(opts.Changed, d.Groups[i].ID)
		}
		if d.Groups[i].Moved {
			opts.Moved = append(opts.Moved, d.Groups[i].ID)
		}
	}
	for i := range d.Servers {
		s := &d.Servers[i]
		old, new := s.Latencies()
		opts.Servers = append(opts.Servers, html.Server{Name: s.Name, OldCount: s.OldCount, NewCount: s.NewCount, Old: old, New: new, Changed: s.Changed})
	}
	return opts
}
