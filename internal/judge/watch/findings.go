package watch

import (
	"cmp"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// A Finding is a finding of the last poll, or of one a short time ago.
type Finding struct {
	Code      report.RuleCode `json:"code"`
	Severity  report.Severity `json:"severity"`
	Title     string          `json:"title"`
	Fix       string          `json:"fix"`
	Site      *report.Site    `json:"site"`
	Groups    []string        `json:"groups"` // of the finding, the one with the largest weight first
	State     FindingState    `json:"state"`
	FirstSeen time.Time       `json:"since"`
	LastSeen  time.Time       `json:"last"`
	// SeenPolls of the PollsSince polls since FirstSeen found it.
	SeenPolls  int `json:"seen"`
	PollsSince int `json:"of"`
}

// IsSameFault reports whether both are one fault, even in other groups: a poll may find it in others than the one before.
func (f *Finding) IsSameFault(o *Finding) bool {
	return f.Code == o.Code && f.Site.LineKey() == o.Site.LineKey()
}

// A FindingState is the state of a finding after the last poll.
type FindingState string

// States.
const (
	StateNew   FindingState = "new"   // for the first time
	StateAgain FindingState = "again" // not in the poll before, but in an earlier one
	StateStill FindingState = "still"
	StateGone  FindingState = "gone"
)

// state returns the finding for the display, as new, still there, back again or gone. looks is the number of polls so far.
func (f *finding) state(looks int) Finding {
	out := f.Finding
	out.Groups, out.PollsSince, out.State = append([]string{}, f.Groups...), looks-f.firstPoll+1, StateStill
	switch {
	case !f.inLastPoll:
		out.State = StateGone
	case f.SeenPolls == 1:
		out.State = StateNew
	case f.returned:
		out.State = StateAgain
	}
	return out
}

// A finding is a fault over several polls.
type finding struct {
	Finding        // as it is shown, but for State and Of
	firstPoll  int // the poll in which it was first found
	inLastPoll bool
	returned   bool // not in the poll before, but in an earlier one
	lastPoll   int  // the last poll that found it
}

// addFindings adds a poll's findings to those that earlier polls found. It drops findings that were gone for long, and those
// beyond maxFindings.
func (s *Service) addFindings(l Poll) {
	r := l.Report
	for _, f := range s.findings {
		f.inLastPoll = false
	}
	for i := range r.Findings {
		rf := &r.Findings[i]
		if rf.Ignored != "" {
			continue
		}
		shown := Finding{Code: rf.Code, Site: rf.Site, FirstSeen: l.Time}
		var groups []string
		if g := r.Group(rf.Group); g != nil {
			groups = []string{names.GroupName(g, maxNameWidth)}
		}
		index := slices.IndexFunc(s.findings, func(f *finding) bool { return f.IsSameFault(&shown) })
		if index < 0 {
			index = len(s.findings)
			s.findings = append(s.findings, &finding{firstPoll: s.polls, Finding: shown})
		}
		f := s.findings[index]
		if f.inLastPoll { // in another group; the first one is the weightiest
			if len(groups) > 0 && !slices.Contains(f.Groups, groups[0]) {
				f.Groups = append(f.Groups, groups[0])
			}
			continue
		}
		f.returned = f.SeenPolls > 0 && f.lastPoll < s.polls-1
		f.inLastPoll, f.lastPoll, f.LastSeen, f.SeenPolls = true, s.polls, l.Time, f.SeenPolls+1
		f.Severity, f.Title, f.Fix, f.Site, f.Groups = rf.Severity, rf.Title, rf.Fix, rf.Site, groups
	}
	s.findings = slices.DeleteFunc(s.findings, func(f *finding) bool { return !f.inLastPoll && l.Time.Sub(f.LastSeen) > goneRetention })
	slices.SortStableFunc(s.findings, func(a, b *finding) int {
		return cmp.Or(cmp.Compare(boolToInt(b.inLastPoll), boolToInt(a.inLastPoll)), cmp.Compare(severityRank(a), severityRank(b)), a.FirstSeen.Compare(b.FirstSeen))
	})
	if len(s.findings) > maxFindings {
		clear(s.findings[maxFindings:])
		s.findings = s.findings[:maxFindings]
	}
}

func severityRank(f *finding) int { return slices.Index(report.Severities(), f.Severity) }
