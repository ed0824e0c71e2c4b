package server

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/report"
)

// redirectToView leads to the viewer of a recording, and there to the wait of the finding that the parameter problem names.
func (s *Server) redirectToView(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/recordings/"+url.PathEscape(r.PathValue("id"))+"/view/"+s.fragment(r, func(rep *report.Report, f *report.Finding) string {
		request, segment := longestWait(rep, f)
		if request == nil {
			return "finding=" + f.ID
		}
		margin := request.LatencyNS / 10
		return fmt.Sprintf("lanes.time=%d-%d&lanes.at=g%d%%40%d", max(0, request.StartNS-margin), request.StartNS+request.LatencyNS+margin, request.Goroutine, segment.StartNS+segment.DurationNS/2)
	}), http.StatusFound)
}

// fragment returns a URL's fragment, with #, of what show returns for the report of the requested recording and its finding that the parameter
// problem names; "" if there is no such finding.
func (s *Server) fragment(r *http.Request, show func(*report.Report, *report.Finding) string) string {
	problem, id := r.FormValue("problem"), requestedID(r)
	if problem == "" || id == "" {
		return ""
	}
	release, err := s.acquireReportSlot(r.Context())
	if err != nil {
		return ""
	}
	defer release()
	rec, err := s.Store.Recording(r.Context(), id)
	if err != nil || rec == nil {
		return ""
	}
	rep, err := s.readReport(r.Context(), id)
	if err != nil {
		return ""
	}
	if f := rows.FindProblem(rec.Labels, rep, problem); f != nil {
		return "#" + show(rep, f)
	}
	return ""
}

// longestWait returns the longest segment of a finding's cause and site in a request of the report, or else the longest segment of
// its group's slowest request; nil if there is none.
func longestWait(rep *report.Report, f *report.Finding) (request *report.Request, longest *report.Segment) {
	ofFinding := false
	for i := range rep.Groups {
		group := &rep.Groups[i]
		if f.Group != "" && group.ID != f.Group {
			continue
		}
		for k := range group.Slowest {
			for j := range group.Slowest[k].Segments {
				segment := &group.Slowest[k].Segments[j]
				matches := isOfFinding(segment, f)
				if longest == nil || matches && !ofFinding || matches == ofFinding && segment.DurationNS > longest.DurationNS {
					request, longest, ofFinding = &group.Slowest[k], segment, matches
				}
			}
		}
	}
	return request, longest
}

// isOfFinding reports whether a segment belongs to a finding: its site, a site in its wait chain, or that of the work ahead of
// it is the finding's, and its cause or that work's is, too.
func isOfFinding(segment *report.Segment, f *report.Finding) bool {
	at, cause := segment.Site.Key() == f.Site.Key(), segment.Cause == f.Cause
	for _, via := range segment.Via {
		at = at || via.Site.Key() == f.Site.Key()
	}
	if work := segment.AheadWork; work != nil {
		at, cause = at || work.Site.Key() == f.Site.Key(), cause || work.Cause == f.Cause
	}
	return at && cause
}
