package verdict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// unawaitedJobs returns the ids of the groups of jobs and loops that do no work for which a server's requests wait: what clients notice is
// reported first. It returns nil if such requests are no more than the jobs and have little of the time: then the jobs may be those of
// clients, over a protocol that is not known, next to a server for health checks.
func unawaitedJobs(r *report.Report) map[string]bool {
	var jobs, calls []*report.Group
	var jobsNS, callsNS int64
	var jobCount, callCount int
	for i := range r.Groups {
		switch g := &r.Groups[i]; {
		case g.Role != report.RoleRequests || g.Count == 0:
		case g.Kind.IsWork():
			jobs, jobsNS, jobCount = append(jobs, g), jobsNS+g.TotalNS, jobCount+g.Count
		case g.Kind.IsCall():
			calls, callsNS, callCount = append(calls, g), callsNS+g.TotalNS, callCount+g.Count
		}
	}
	if len(jobs) == 0 || callCount <= jobCount && float64(callsNS) < threshold.MinorShare*float64(jobsNS+callsNS) {
		return nil
	}
	workOfCalls := make([]map[report.SiteKey]float64, len(calls))
	for i, g := range calls {
		workOfCalls[i] = workLines(r, g)
	}
	unawaited := map[string]bool{}
	for _, job := range jobs {
		work := workLines(r, job)
		unawaited[job.ID] = !slices.ContainsFunc(workOfCalls, func(ofCall map[report.SiteKey]float64) bool {
			share := 0.0
			for line, part := range work {
				if part >= threshold.MinorShare {
					share += ofCall[line]
				}
			}
			return share >= threshold.MajorShare
		})
	}
	return unawaited
}

// workLines returns the lines at which the time of a group's slow requests passes, with their shares: in their own work, in that of those
// ahead in a queue, and in what ran while they waited for a CPU.
func workLines(r *report.Report, g *report.Group) map[report.SiteKey]float64 {
	shares := map[report.SiteKey]float64{}
	add := func(site *report.Site, share float64) {
		if site != nil {
			shares[site.OwnLine().LineKey()] += share
		}
	}
	causes := Causes(r, g, g.Tail())
	for i := range causes {
		c := &causes[i]
		if c.AheadWork != nil {
			for _, s := range c.AheadWork.Sites {
				add(s.Site, s.Share)
			}
			continue
		}
		for _, s := range c.Sites {
			add(s.Site, s.Share)
		}
		for _, ran := range c.RanMeanwhile {
			add(ran.Site, c.Share*ran.Share)
		}
	}
	return shares
}
