// Package text writes a report for people at a terminal: first what the slow requests spent their time on, then the
// groups, their causes by latency band, and the slowest request as a chain of segments.
//
// The text contains only facts of the report. Names of functions and files are shortened, to those without directories; the JSON
// has them in full.
package text

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Options say how a report is written. The zero value is ready for use.
type Options struct {
	// Width is the number of columns that lines may take: 0 means 100, and less than 60 or more than 200 is taken as
	// 60 and 200.
	Width int
	// Color marks text with the terminal's colours.
	Color bool
	// Full adds evidence, causes by latency band, the slowest request and the runtime. Without it, a report takes 24 lines or a few
	// more. A Band implies it.
	Full bool
	// AllGroups shows every group in full, not only the one with the most latency. It implies Full.
	AllGroups bool
	// Band, if not empty, shows the causes of this band only, in more detail.
	Band report.BandName
	// Slowest is how many of a group's slowest requests are shown: 0 means 1, negative none.
	Slowest int
	// Command is the command that gives this report, such as "whylate explain x.trace". Hints about further commands contain it; without
	// it there are no hints.
	Command string
}

// Limits on the number of rows, and on the length of texts.
const (
	maxShort       = 2 // groups after the first that are shown in short
	maxTableGroups = 8 // groups in one line each
	fullRows       = 7 // causes of a group
	shortRows      = 3
	bandRows       = 20
	maxSegments    = 9
	maxWarning     = 600 // columns
)

// Write writes r to w. It returns only errors of w. No text in r can disturb the terminal or make a line longer than the width.
func Write(w io.Writer, r *report.Report, opts Options) error {
	p := newPage(w, opts)
	p.report = r
	if p.isShort() {
		p.shortForm()
		return p.end()
	}
	p.header()
	if len(r.Groups) == 0 {
		if p.noRequests() {
			return p.end()
		}
		p.whatIf()
		p.findings()
		p.judged()
	} else {
		p.verdict()
		p.findings()
		p.judged()
		p.goals()
		p.whatIf()
		p.moments()
		p.groups()
	}
	p.runtime()
	p.clocks()
	p.host()
	p.warnings()
	p.next()
	return p.end()
}

// isShort reports whether the page is the short form.
func (p *page) isShort() bool {
	return len(p.report.Groups) > 0 && !p.opts.Full && !p.opts.AllGroups && p.opts.Band == "" && p.report.WhatIf == nil && len(p.report.Goals) == 0
}

// end flushes the output and returns the first error of writing.
func (p *page) end() error {
	if err := p.out.Flush(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// A page is one report being written.
type page struct {
	printer
	report *report.Report
	opts   Options
}

// newPage returns a page with defaults for options that are zero, 60 to 200 columns wide.
func newPage(w io.Writer, opts Options) *page {
	opts.Width = min(max(cmp.Or(opts.Width, 100), 60), 200)
	opts.Slowest = cmp.Or(opts.Slowest, 1)
	return &page{printer: printer{out: bufio.NewWriter(w), color: opts.Color, width: opts.Width}, opts: opts}
}

// minRepresentative is the number of requests below which the first line says that they do not represent others.
const minRepresentative = 10

// fewRequests returns the finding about too few requests for reliable percentiles; nil if there are enough.
func (p *page) fewRequests() *report.Finding {
	for i := range p.report.Findings {
		if f := &p.report.Findings[i]; f.Code == report.RuleFewRequests && f.Ignored == "" {
			return f
		}
	}
	return nil
}

// header describes the recording in one line.
func (p *page) header() {
	in := &p.report.Input
	requests := 0
	for i := range p.report.Groups {
		requests += p.report.Groups[i].Count
	}
	facts := []string{words.Duration(in.DurationNS)}
	if in.Start != nil {
		facts[0] += " at " + in.Start.UTC().Format(fact("2006-01-02 15:04:05 UTC"))
	}
	if h := p.report.Host; h != nil && h.PID > 0 {
		facts = append(facts, fact("pid "+strconv.Itoa(h.PID)))
	}
	if v := names.GoVersion(p.report); v != "" {
		facts = append(facts, fact("Go "+termtext.Head(v, 12)))
	}
	if in.GOMAXPROCS > 0 {
		facts = append(facts, fact("GOMAXPROCS "+strconv.Itoa(in.GOMAXPROCS)))
	}
	found := fact(names.CountAll(p.report.Groups))
	if len(p.report.Groups) != 1 {
		found += " in " + words.Count(len(p.report.Groups), "group", "groups")
	} else if f := p.fewRequests(); f != nil && requests < minRepresentative {
		found = "only " + found + ", too few to generalise: record longer"
	} else if f != nil {
		found += ", too few for a p99"
	}
	if servers := p.report.Servers; len(servers) == 1 && servers[0].Count == requests && servers[0].LatencyNS.P50 != nil && servers[0].LatencyNS.P99 != nil {
		if len(p.report.Groups) > 1 {
			found += ", together"
		} else {
			found += ","
		}
		found += " " + fact("p50 "+words.Duration(*servers[0].LatencyNS.P50)) + ", " + fact("p99 "+words.Duration(*servers[0].LatencyNS.P99))
	}
	facts = append(facts, found)
	if s := in.Sampled; s != nil {
		followed := "followed " + strconv.Itoa(s.Walked) + ": the slowest and a sample of the others"
		if e := p.report.ShareError(); e > 0 {
			followed += fmt.Sprintf(", shares to ±%.1f points", 100*max(e, 0.001))
		}
		facts = append(facts, followed)
	} else if e := p.report.ShareError(); e > 0 {
		facts = append(facts, fmt.Sprintf("followed a sample of the run, shares to ±%.1f points", 100*max(e, 0.001)))
	}
	if in.Truncated {
		facts = append(facts, "cut short")
	}
	marks := p.marks()
	if p.isShort() {
		marks = "" // it has no footnotes
	}
	rest := noBreak + "· " + strings.Join(facts, noBreak+"· ")
	p.paragraph(span{}, 0, span{bold, termtext.Middle(cmp.Or(in.Name, "trace"), p.width-12)}, span{yellow, marks}, span{dim, rest})
	if pod := names.Pod(p.report); pod != "" {
		p.paragraph(span{}, 0, span{plain, termtext.Head(pod, maxWarning)})
	}
	if in.Reason != "" {
		p.paragraph(span{}, 0, span{plain, "kept because " + termtext.Head(in.Reason, maxWarning)})
	}
}

// marks returns the numbers of the footnotes in superscript digits.
func (p *page) marks() string {
	var marks []string
	for i := range p.report.Input.Warnings {
		marks = append(marks, raised(i+1))
	}
	if len(marks) > 9 {
		marks = append(marks[:9], termtext.Ellipsis)
	}
	return strings.Join(marks, "\u02d2")
}

// raised writes n in superscript digits.
func raised(n int) string {
	var b strings.Builder
	for _, d := range strconv.Itoa(n) {
		b.WriteRune([]rune("⁰¹²³⁴⁵⁶⁷⁸⁹")[d-'0'])
	}
	return b.String()
}

// noRequests writes why the report has no requests. It reports whether none matches the options of the user: then the
// rest of the report is about something else.
func (p *page) noRequests() (noMatch bool) {
	p.line()
	for _, w := range p.report.Input.Warnings {
		switch w.Code {
		case "no-group":
			p.paragraph(span{}, 0, span{bold, "No group's name matches."}, span{plain, " " + p.sentence(w.Text)})
			return true
		case "no-match":
			p.paragraph(span{}, 0, span{bold, "Nothing matches what was asked for."}, span{plain, " " + p.sentence(w.Text)})
			return true
		}
	}
	p.paragraph(span{}, 0, span{bold, "No request ended in these " + words.Duration(p.report.Input.DurationNS) + "."}, span{plain, " Record while the service has load, or longer (record -d 30s)." +
		" If one of your functions does the work, name it: every call of it is then a request."})
	p.starts()
	return false
}

// maxStarts is how many functions are proposed if no requests were found.
const maxStarts = 6

// starts writes the busiest functions, each with the command that explains its calls.
func (p *page) starts() {
	list := p.report.Starts
	if p.opts.Command == "" {
		return
	}
	command := termtext.Head(p.opts.Command, p.width-30)
	if len(list) == 0 {
		p.line()
		p.line(span{plain, "  "}, span{bold, command + " --request 'main.work'"})
		return
	}
	p.line()
	p.line(span{plain, "These functions ran; each command explains one:"})
	for i := range list[:min(len(list), maxStarts)] {
		s := &list[i]
		function := cmp.Or(s.Inner, s.Site)
		if function == nil {
			continue
		}
		p.line()
		p.line(span{plain, "  "}, span{bold, command + " --request " + words.ShellQuote(namePattern(function.Func))})
		p.paragraph(span{plain, "   "}, 4, span{dim, words.Count(s.Goroutines, "goroutine", "goroutines") + " of " + termtext.Middle(words.FuncName(s.Site.Func), p.width/2) + ", woken " +
			words.Count(s.Wakes, "time", "times") + ", running for " + words.Duration(s.RunningNS)})
	}
	if hidden := len(list) - maxStarts; hidden > 0 {
		p.line()
		p.line(span{dim, "  and " + words.Count(hidden, "more function", "more functions") + " in the JSON"})
	}
}

// judged writes which rules could judge. It distinguishes a rule that found nothing from one that lacked data.
func (p *page) judged() {
	if p.report.Judged == nil || p.report.Judged.Text == "" {
		return
	}
	p.line()
	p.paragraph(span{bold, "judged"}, indent, span{plain, breakable(termtext.Head(p.report.Judged.Text, maxTitle), p.width/2)})
}

// clocks writes how well the times of services on different hosts can be compared.
func (p *page) clocks() {
	var parts []string
	for i := range p.report.Services {
		s := &p.report.Services[i]
		if c := s.Clock; c != nil && c.HighNS > c.LowNS {
			part := termtext.Head(s.Name, 40) + " ±" + words.Duration((c.HighNS-c.LowNS)/2)
			if drift := c.DriftPPM / 1e6 * float64(s.Input.DurationNS); max(drift, -drift) > float64(c.HighNS-c.LowNS) {
				part += fmt.Sprintf(", drifting by %.0f ppm", c.DriftPPM)
			}
			parts = append(parts, part)
		}
	}
	if len(parts) > 0 {
		p.paragraph(span{bold, "clocks"}, indent, span{plain, "compared with " + termtext.Head(p.report.Services[0].Name, 40) + "'s: " + strings.Join(parts, "; ")})
	}
}

// runtime describes the runtime's and the kernel's behaviour in one or two lines.
func (p *page) runtime() {
	rt := &p.report.Runtime
	var parts []string
	if gc := &rt.GC; gc.Cycles > 0 {
		s := words.Count(gc.Cycles, "GC cycle", "GC cycles")
		if p.report.Input.DurationNS > 0 {
			s += ", marking " + words.PercentOr0(float64(gc.MarkNS)/float64(p.report.Input.DurationNS)) + " of the time"
		}
		if gc.HeapMaxBytes > 0 {
			s += ", heap up to " + words.Bytes(gc.HeapMaxBytes)
		}
		parts = append(parts, s)
	}
	if rt.Sched.Goroutines > 0 {
		parts = append(parts, words.Count(rt.Sched.Goroutines, "goroutine", "goroutines")+" seen")
		if p.report.Input.TraceFrom == "" {
			parts = append(parts, "at least one P idle "+words.PercentOr0(rt.Sched.PsIdle)+" of the time")
		}
	}
	var worst *report.STW
	for i := range rt.STW {
		if worst == nil || rt.STW[i].MaxNS > worst.MaxNS {
			worst = &rt.STW[i]
		}
	}
	if worst != nil {
		parts = append(parts, "longest stop of the world "+words.Duration(worst.MaxNS)+" ("+termtext.Head(worst.Kind, 40)+")")
	}
	spans := []span{{plain, strings.Join(parts, "; ")}}
	switch t := &rt.Throttle; t.Verdict {
	case report.ThrottleOwn, report.ThrottleAncestor:
		owner := "its own"
		if p.report.Host == nil && t.R > 0 {
			owner = "a" // a trace alone does not show which group has the quota
		}
		if t.Verdict == report.ThrottleAncestor {
			owner = "an ancestor's"
		}
		if len(parts) > 0 {
			spans = append(spans, span{plain, "; "})
		}
		spans = append(spans, span{boldRed, "throttled by " + owner + " CPU limit"},
			span{plain, ": " + words.Duration(t.LostWallNS) + " of the time, " + words.Duration(t.LostCPUNS) + " of CPU (" + termtext.Head(t.Text, 80) + ")"})
	}
	if t := &rt.Throttle; t.Suspect > 0 {
		if len(parts) > 0 {
			spans = append(spans, span{plain, "; "})
		}
		spans = append(spans, span{bold, "a CPU quota cannot be excluded"}, span{plain, ": " + termtext.Head(t.Text, 200)})
	}
	if len(spans) == 1 && len(parts) == 0 {
		return
	}
	p.line()
	p.paragraph(span{bold, "runtime"}, indent, spans...)
}

// warnings writes the footnotes.
func (p *page) warnings() {
	if len(p.report.Input.Warnings) == 0 {
		return
	}
	p.line()
	for i, w := range p.report.Input.Warnings {
		p.paragraph(span{yellow, raised(i + 1)}, 3, span{plain, breakable(termtext.Head(w.Text, maxWarning), p.width/2)})
	}
}

// breakable shortens words longer than max, in their middle, so that a paragraph can break the text between words.
func breakable(s string, max int) string {
	words := strings.Split(s, " ")
	for i, w := range words {
		if termtext.Width(w) > max {
			words[i] = termtext.Middle(w, max)
		}
	}
	return strings.Join(words, " ")
}
