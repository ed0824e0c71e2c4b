package capacity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Text describes a capacity in one sentence: today's load, a load of the question that it does not reach, the first limits, and
// the kinds that are not judged.
func Text(c *report.Capacity) string {
	var b strings.Builder
	fmt.Fprintf(&b, "today %s/s", words.Figure(c.LoadPerS))
	if len(c.Limits) > 0 && c.AskedLoadPerS >= c.Limits[0].SaturatesPerS {
		fmt.Fprintf(&b, "; does not reach %s/s", words.Figure(c.AskedLoadPerS))
	}
	first := "limit"
	if slices.ContainsFunc(c.NotJudged, func(n report.NotJudged) bool { return n.Kind != "" }) {
		first = "limit of those that can be judged"
	}
	for i := range c.Limits[:min(len(c.Limits), 3)] {
		l := &c.Limits[i]
		if i == 0 {
			fmt.Fprintf(&b, "; first "+first+": %s at %s/s (%s to %s)", LimitName(l), words.Figure(l.SaturatesPerS), words.Figure(l.SaturatesLow), words.Figure(l.SaturatesHigh))
		} else {
			fmt.Fprintf(&b, ", then %s at %s/s", LimitName(l), words.Figure(l.SaturatesPerS))
		}
	}
	if len(c.Limits) == 0 {
		b.WriteString("; the recording shows no limit")
	}
	if places := NotJudged(c); places != "" {
		b.WriteString("; not judged: " + places)
	}
	return b.String()
}

// NotJudged returns the sites of limits that the recording does not show well enough, as text; "" if there are none.
func NotJudged(c *report.Capacity) string {
	var places []string
	hasPeers := false
	for i := range c.NotJudged {
		if n := &c.NotJudged[i]; n.Kind == "" && n.Reason == peerReason {
			hasPeers = true
		} else if n.Site != nil {
			places = append(places, strings.TrimSpace(string(n.Kind)+" "+siteName(n.Site)))
		}
	}
	if hasPeers {
		places = append(places, "peers")
	}
	return strings.Join(places, ", ")
}

// LimitName returns the name of a limit, with its number of servers and its site, for a sentence: "pool of 5 main.serve
// main.go:12".
func LimitName(l *report.Limit) string {
	name := string(l.Kind)
	switch {
	case l.Kind == report.LimitPool:
		name = fmt.Sprintf("pool of %.0f", l.Servers)
	case l.Kind == report.LimitCPU:
		name = "CPU of " + words.CPUs(l.Servers)
	case l.Kind == report.LimitQuota:
		name = "CPU quota of " + words.CPUs(l.Servers)
	case l.Servers > 1:
		name = fmt.Sprintf("%.0f %ss", l.Servers, name)
	}
	if l.Site != nil {
		name += " " + siteName(l.Site)
	}
	return name
}

// siteName returns the name of a site for a sentence, at most 60 columns wide.
func siteName(s *report.Site) string { return names.SiteText(s.OwnLine(), 60) }
