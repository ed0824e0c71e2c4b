package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A need is something that a rule must have to be sure that there is nothing to find: nil if it is there, else what is lacking.
type need func(*Input) *lack

// A lack is something that a recording does not hold and that rules need, and how to have it.
type lack struct {
	reason  report.BlindReason
	text    string
	seconds int    // to record; 0: as usual
	pid     bool   // record on the process's host
	other   string // a command that records nothing
}

// requests: any request that ended. The rules about the collector need none, as it is seen whole, nor do those about the recording.
func requests(in *Input) *lack {
	switch {
	case slices.ContainsFunc(in.Report.Groups, func(g report.Group) bool { return g.Count > 0 }):
		return nil
	case slices.ContainsFunc(in.Report.Input.Warnings, func(w report.Warning) bool { return w.Code == "no-group" || w.Code == "no-match" }):
		return &lack{reason: report.BlindRequests, text: "nothing matches what was asked for"} // which no command settles
	}
	explain := "whylate explain --request FUNCTION " + words.ShellQuote(cmp.Or(in.Report.Input.Name, "TRACE"))
	return &lack{reason: report.BlindRequests, text: "no request ended", other: explain}
}

// cpuSamples: enough of them to tell shares.
func cpuSamples(in *Input) *lack {
	switch n := in.Process.Samples.All; {
	case n >= scale.Many:
		return nil
	case n > 0:
		return &lack{reason: report.BlindCPUSamples, text: words.Count(int(n), "CPU sample", "CPU samples") + " only", seconds: 30}
	}
	return &lack{reason: report.BlindCPUSamples, text: "no CPU samples"}
}

// delays: for how long threads waited for CPUs, by the kernel's own account, or else by CPU samples.
func delays(in *Input) *lack {
	if _, known := delayed(in); known {
		return nil
	}
	return cpuSamples(in)
}

// hostSamples: the kernel's counters beside the trace.
func hostSamples(in *Input) *lack {
	if in.Report.Host != nil {
		return nil
	}
	return noHost
}

// states: the process's state in samples.
func states(in *Input) *lack {
	if h := in.Report.Host; h != nil && h.States {
		return nil
	}
	return noHost
}

// connections: what the process's connections retransmitted.
func connections(in *Input) *lack {
	if h := in.Report.Host; h != nil && h.Network.Verdict != report.NetworkUnknown && h.Network.Verdict != "" {
		return nil
	}
	return noHost
}

// quota: whether a CPU quota held the process back.
func quota(in *Input) *lack {
	switch r := in.Report; {
	case r.Runtime.Throttle.Verdict != report.ThrottleUnknown:
		return nil
	case r.Host == nil && r.Input.DurationNS < shortForFreezes:
		return &lack{reason: report.BlindTime, text: "too short to see freezes", seconds: 10}
	}
	return noHost
}

// shortForFreezes is a time in which a quota's freezes are too few to be told from others (docs/throttling.md), in ns.
const shortForFreezes = 3e9

var noHost = &lack{reason: report.BlindHostSamples, text: "no samples of the host", pid: true}

// Judge says which of the rules had something to judge by: those that found nothing for want of it are not clear.
func Judge(in *Input, rules []Rule, findings []report.Finding) *report.Judged {
	lacks := map[report.BlindReason]*lack{} // the first of each
	j := &report.Judged{Rules: len(rules), Found: []report.RuleCode{}, Clear: []report.RuleCode{}, Blind: []report.Blind{}}
	for i := range rules {
		code := rules[i].Code
		if slices.ContainsFunc(findings, func(f report.Finding) bool { return f.Code == code }) {
			j.Found = append(j.Found, code)
			continue
		}
		l := rules[i].lacks(in)
		if l == nil {
			j.Clear = append(j.Clear, code)
			continue
		}
		at := slices.IndexFunc(j.Blind, func(b report.Blind) bool { return b.Reason == l.reason })
		if at < 0 {
			at = len(j.Blind)
			j.Blind = append(j.Blind, report.Blind{Reason: l.reason, Text: l.text, Record: in.command(l)})
			lacks[l.reason] = l
		}
		j.Blind[at].Codes = append(j.Blind[at].Codes, code)
	}
	slices.SortStableFunc(j.Blind, func(a, b report.Blind) int {
		return slices.Index(report.BlindReasons(), a.Reason) - slices.Index(report.BlindReasons(), b.Reason)
	})
	j.Record = in.settles(lacks)
	j.Text = judgedText(j)
	return j
}

// lacks returns the first of what a rule would have needed, nil if it had all.
func (r *Rule) lacks(in *Input) *lack {
	for _, n := range r.needs {
		if l := n(in); l != nil {
			return l
		}
	}
	return nil
}

// recordedURL is where the trace came from, if it says so.
func recordedURL(r *report.Report) string {
	if strings.HasPrefix(r.Input.Name, "http://") || strings.HasPrefix(r.Input.Name, "https://") {
		return words.ShellQuote(r.Input.Name)
	}
	return "URL"
}

// settles returns one command for all that is lacking, as far as a recording can settle it; "" if nothing is.
func (in *Input) settles(lacks map[report.BlindReason]*lack) string {
	var all lack
	for _, l := range lacks {
		if len(lacks) == 1 {
			return in.command(l)
		}
		if l.reason != report.BlindRequests {
			all = lack{reason: l.reason, seconds: max(all.seconds, l.seconds), pid: all.pid || l.pid}
		}
	}
	if all.reason == "" {
		return ""
	}
	return in.command(&all)
}

// command is what settles a lack.
func (in *Input) command(l *lack) string {
	if l.reason == report.BlindRequests {
		return l.other
	}
	record := "whylate record"
	if l.seconds > 0 {
		record += fmt.Sprintf(" -d %ds", l.seconds)
	}
	if l.pid {
		record += " --pid PID"
	}
	return record + " -o x.whylate " + recordedURL(in.Report)
}

// judgedText is all of it in one line.
func judgedText(j *report.Judged) string {
	parts := []string{fmt.Sprintf("%d found", len(j.Found)), fmt.Sprintf("%d clear", len(j.Clear))}
	blind := 0
	var why []string
	for i := range j.Blind {
		b := &j.Blind[i]
		blind += len(b.Codes)
		text := b.Text + " ("
		for k, c := range b.Codes[:min(len(b.Codes), maxCodes)] {
			if k > 0 {
				text += ", "
			}
			text += string(c)
		}
		if n := len(b.Codes) - maxCodes; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		why = append(why, text+")")
	}
	if blind > 0 {
		parts = append(parts, fmt.Sprintf("%d not judged: %s", blind, strings.Join(why, ", ")))
	}
	text := words.Count(j.Rules, "rule", "rules") + ": " + strings.Join(parts, ", ")
	if j.Record != "" {
		text += "; to judge them: " + j.Record
	}
	return text
}

// maxCodes bounds the codes that are spelled out for one lack.
const maxCodes = 4
