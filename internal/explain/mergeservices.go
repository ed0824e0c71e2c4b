package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// withoutRemotes returns a copy of a group in which time inside other services counts as time of the network waits for them;
// false if it has no such time. Rules judge each service by its own report.
func withoutRemotes(g *report.Group) (result report.Group, hasRemotes bool) {
	out := *g
	out.Bands = slices.Clone(g.Bands)
	isChanged := false
	for b := range entry.Each(out.Bands) {
		if !slices.ContainsFunc(b.Causes, func(c report.Cause) bool { return c.Service != "" }) {
			continue
		}
		isChanged = true
		rows := slices.DeleteFunc(slices.Clone(b.Causes), func(c report.Cause) bool { return c.Service != "" })
		for k := range b.Causes {
			if b.Causes[k].Service != "" {
				rows = addToWaitRow(rows, &b.Causes[k])
			}
		}
		slices.SortStableFunc(rows, func(a, b report.Cause) int {
			return verdict.CompareTimes(a.Cause, a.TotalNS, b.Cause, b.TotalNS)
		})
		b.Causes = rows
	}
	return out, isChanged
}

// addToWaitRow adds the time of a row c of another service to the rows of this service's network waits for it, and returns the
// rows. It creates missing ones.
func addToWaitRow(rows []report.Cause, c *report.Cause) []report.Cause {
	for _, route := range c.AllRoutes() {
		ownWaits, _ := report.DivideAtServices(route.Via)
		wait := &route.Via[len(ownWaits)]
		row := entry.FindOrAppend(&rows, func(r report.Cause) bool {
			return r.Cause == report.CauseNetwork && r.WayTo == wait.Service && r.Call == wait.Call && r.Site.Key() == wait.Site.Key()
		}, report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: wait.Site, Call: wait.Call, WayTo: wait.Service, Via: ownWaits, Routes: []report.Route{}})
		if row.Routes == nil {
			row.Routes = row.AllRoutes()
		}
		row.Routes = slices.Clone(row.Routes)
		entry.FindOrAppend(&row.Routes, func(o report.Route) bool {
			return slices.EqualFunc(o.Via, ownWaits, func(a, b report.Via) bool { return a.Equal(&b) })
		}, report.Route{Via: ownWaits}).TotalNS += route.TotalNS
		fraction := float64(route.TotalNS) / float64(max(c.TotalNS, 1))
		row.TotalNS += route.TotalNS
		row.Share += fraction * c.Share
		row.Requests = max(row.Requests, c.Requests)
	}
	return rows
}

// mergeServices merges the reports of several services into one. order lists the services, callers first; the first of them is
// the entry service, whose clock and input the report has.
func mergeServices(services []*Service, order []int) *report.Report {
	entrance := services[order[0]]
	clocks := newClockTable(entrance, services)
	out := *entrance.report
	out.Services, out.Groups, out.Findings, out.Moments, out.WhatIf, out.Goals = nil, nil, nil, nil, nil, nil
	out.Input.Warnings = nil
	var names []string
	for _, i := range order {
		s := services[i]
		rep := s.report
		names = append(names, s.name())
		renameGroups(rep, s.name())
		out.Services = append(out.Services, s.reportService(clocks, services))
		out.Groups = append(out.Groups, rep.Groups...)
		out.Findings = append(out.Findings, rep.Findings...)
		out.Moments = append(out.Moments, rep.Moments...)
		out.WhatIf = append(out.WhatIf, rep.WhatIf...)
		out.Goals = append(out.Goals, rep.Goals...)
		for _, w := range rep.Input.Warnings {
			out.Input.Warnings = append(out.Input.Warnings, report.Warning{Code: w.Code, Text: s.name() + ": " + w.Text})
		}
		if s != entrance {
			out.Judged = finding.MergeJudged(out.Judged, rep.Judged)
		}
	}
	for i := range out.Groups {
		if p := out.Groups[i].Peer; p != nil && p.Recording != "" {
			if g := out.Group(p.Group); g != nil {
				p.Name = g.Name
			}
		}
	}
	out.Input.Name = strings.Join(names, " + ")
	out.Input.Warnings = append(out.Input.Warnings, pairingWarnings(services, order)...)
	slices.SortStableFunc(out.Groups, func(a, b report.Group) int {
		return cmp.Compare(roleRank(a.Role), roleRank(b.Role))
	})
	addCostForCallers(&out)
	sortByEntryCost(&out, entrance.name())
	out.Verdict = verdict.Verdicts(&out)
	return &out
}

// roleRank orders groups: requests first.
func roleRank(r report.Role) int {
	if r == report.RoleRequests {
		return 0
	}
	return 1
}

// renameGroups makes the ids of groups and findings in a report unique among services, by adding the service's name to each.
func renameGroups(rep *report.Report, service string) {
	rename := func(id *string) {
		if *id != "" {
			*id = spell.ID("service", service, *id)
		}
	}
	for g := range entry.Each(rep.Groups) {
		g.Service = service
		rename(&g.ID)
		if g.Peer != nil && g.Peer.Recording != "" {
			g.Peer.Group = spell.ID("service", g.Peer.Recording, g.Peer.Group)
		} else if g.Peer != nil {
			rename(&g.Peer.Group)
		}
	}
	for f := range entry.Each(rep.Findings) {
		f.Service = service
		rename(&f.ID)
		rename(&f.Group)
		for k := range f.AskedBy {
			rename(&f.AskedBy[k].Group)
		}
	}
	for i := range rep.Moments {
		rename(&rep.Moments[i].Group)
	}
	for i := range rep.WhatIf {
		rename(&rep.WhatIf[i].Group)
	}
	for i := range rep.Goals {
		rename(&rep.Goals[i].Group)
	}
}

// reportService returns what the merged report has about a service: its input, runtime, host, clock, and joined calls.
func (s *Service) reportService(clocks clockTable, services []*Service) report.Service {
	rep := s.report
	out := report.Service{Name: s.name(), Input: rep.Input, Runtime: rep.Runtime, Host: rep.Host, Servers: rep.Servers}
	out.Clock = clocks.clockOf(s)
	for _, callee := range services {
		if n := s.remotes.callees[callee.server]; n > 0 {
			out.Calls = append(out.Calls, report.ServiceCalls{Service: callee.name(), Joined: n, Ambiguous: s.remotes.ambiguous[callee.server]})
		}
	}
	return out
}

// pairingWarnings returns warnings about calls that could not be joined because they are ambiguous, and about services without
// any joined call, with the probable reason.
func pairingWarnings(services []*Service, order []int) (out []report.Warning) {
	for _, i := range order {
		s := services[i]
		for _, callee := range services {
			if n := s.remotes.ambiguous[callee.server]; n > 0 {
				out = append(out, report.Warning{Code: WarnServices, Text: fmt.Sprintf("%d of %d calls of %s to %s could be one of several at the same time: left as one wait for the network",
					n, n+s.remotes.callees[callee.server], s.name(), callee.name())})
			}
		}
		switch {
		case s.connectedRank(services) > 0:
		case !s.preview.clock.IsKnown:
			out = append(out, report.Warning{Code: WarnServices, Text: s.name() + " cannot be compared with the other services: traces have the time of day from Go 1.25 on"})
		case !s.overlaps(services):
			out = append(out, report.Warning{Code: WarnServices, Text: s.name() + " was recorded at another time than the other services: start all recordings at once"})
		default:
			out = append(out, report.Warning{Code: WarnServices, Text: "no call between " + s.name() + " and another service was found: calls over HTTP and gRPC are, if no proxy is between them and their order shows which is which"})
		}
	}
	return out
}

// WarnServices is the code of warnings about services that were recorded together.
const WarnServices = "services"

// overlaps reports whether the recording of a service has at least 100 ms in common with that of another one.
func (s *Service) overlaps(services []*Service) bool {
	return slices.ContainsFunc(services, func(o *Service) bool {
		if o == s || o.server == nil || s.server == nil {
			return false
		}
		link := s.preview.clock.To(o.preview.clock)
		offset, _ := link.OffsetAt(0)
		return min(s.server.To, o.server.To+offset)-max(s.server.From, o.server.From+offset) >= 100e6
	})
}

// addCostForCallers adds to each finding its cost for the groups of other services whose requests wait for the finding's service.
func addCostForCallers(rep *report.Report) {
	for f := range entry.Each(rep.Findings) {
		for g := range entry.Each(rep.Groups) {
			if g.Service == f.Service || g.Role != report.RoleRequests {
				continue
			}
			if share, ns := shareDueTo(f, g, g.All()); share >= threshold.NoiseShare {
				f.AskedBy = append(f.AskedBy, report.AskedBy{Group: g.ID, Name: g.Name, Share: share, EachNS: ns / int64(max(g.Count, 1))})
			}
		}
	}
}

// shareDueTo returns the share and the total ns of the requests' time in band b of group g that is due to a finding. The group
// may be of another service than the finding.
func shareDueTo(f *report.Finding, g *report.Group, b *report.Band) (share float64, ns int64) {
	if b == nil {
		return 0, 0
	}
	service := f.Service
	if g.Service == service {
		if f.Group != "" && f.Group != g.ID {
			return 0, 0
		}
		service = ""
	}
	for c := range entry.Each(b.Causes) {
		if c.Service != service || c.WayTo != "" {
			continue
		}
		for _, route := range c.AllRoutes() {
			if !isDueTo(f, c, route.Via) {
				continue
			}
			ns += route.TotalNS
			share += c.Share * float64(route.TotalNS) / float64(max(c.TotalNS, 1))
		}
	}
	return min(share, 1), ns
}

// isDueTo reports whether time of a cause behind the waits via is due to a finding: it is in the finding's queue or, if that has
// none, has the finding's cause and is at its site.
func isDueTo(f *report.Finding, c *report.Cause, via []report.Via) bool {
	waits, inner := report.DivideAtServices(via)
	if c.Service != "" {
		waits = inner
	}
	if f.Queue != nil {
		return slices.ContainsFunc(waits, func(v report.Via) bool { return f.Queue.Contains(&v) })
	}
	if f.Cause == "" || !c.In(f.Cause) {
		return false
	}
	if f.Site == nil || report.Family(f.Cause) != nil || c.Site == nil {
		return true
	}
	return c.Site.LineKey().Func == f.Site.LineKey().Func && c.Site.OwnLine().Func == f.Site.OwnLine().Func
}

// sortByEntryCost sorts the findings of all services. Findings of high or medium severity that cost the slow requests of the
// entry service at least threshold.NoticeableShare come first, by severity and then by that cost; then the others in the same
// order.
func sortByEntryCost(rep *report.Report, entrance string) {
	cost := make(map[string]float64)
	for f := range entry.Each(rep.Findings) {
		for k := range rep.Groups {
			if g := &rep.Groups[k]; g.Service == entrance && g.Role == report.RoleRequests {
				share, _ := shareDueTo(f, g, g.Tail())
				cost[f.ID] = math.Max(cost[f.ID], share)
			}
		}
	}
	rank := func(f *report.Finding) int {
		severity := slices.Index(report.Severities(), f.Severity)
		if f.Severity.IsMajor() && cost[f.ID] < threshold.NoticeableShare {
			severity += len(report.Severities())
		}
		return severity
	}
	slices.SortStableFunc(rep.Findings, func(a, b report.Finding) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(cost[b.ID], cost[a.ID]))
	})
}
