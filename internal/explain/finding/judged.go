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

// A lack is something that a recording does not hold and that rules need.
type lack struct {
	reason report.BlindReason
	text   string
	record string // the command that settles it
}

// Judge says which of the rules had something to judge by: those that found nothing for want of it are not clear.
func Judge(in *Input, rules []Rule, findings []report.Finding) *report.Judged {
	j := &report.Judged{Rules: len(rules), Found: []report.RuleCode{}, Clear: []report.RuleCode{}, Blind: []report.Blind{}}
	for i := range rules {
		code := rules[i].Code
		if slices.ContainsFunc(findings, func(f report.Finding) bool { return f.Code == code }) {
			j.Found = append(j.Found, code)
			continue
		}
		l := in.lacks(code)
		if l == nil {
			j.Clear = append(j.Clear, code)
			continue
		}
		at := slices.IndexFunc(j.Blind, func(b report.Blind) bool { return b.Reason == l.reason })
		if at < 0 {
			at = len(j.Blind)
			j.Blind = append(j.Blind, report.Blind{Reason: l.reason, Text: l.text, Record: l.record})
		}
		j.Blind[at].Codes = append(j.Blind[at].Codes, code)
	}
	slices.SortStableFunc(j.Blind, func(a, b report.Blind) int {
		return slices.Index(report.BlindReasons(), a.Reason) - slices.Index(report.BlindReasons(), b.Reason)
	})
	j.Record = settles(in.Report, j.Blind)
	j.Text = judgedText(j)
	return j
}

// lacks returns what a rule that found nothing would have needed, nil if it had all.
func (in *Input) lacks(code report.RuleCode) *lack {
	host, samples := in.Report.Host, in.Process.Samples.All
	url := recordedURL(in.Report)
	switch code {
	case report.RuleFewRequests, report.RuleTruncated, report.RuleTraceOverhead, report.RuleClock, report.RuleLostEvents, report.RuleShortWindow:
		return nil // about the recording itself
	case report.RuleTooManyPs, report.RuleThreadsOffCPU:
		// The kernel's own account does as well.
		if _, known := delayed(in); known {
			return nil
		}
		return fewSamples(samples, url)
	case report.RuleTooFewPs, report.RuleGOMAXPROCSAndLimit:
		if host == nil {
			return noHost(url)
		}
		return nil
	case report.RuleStopped:
		if host == nil || !host.States {
			return noHost(url)
		}
		return nil
	case report.RuleThrottled:
		switch {
		case in.Report.Runtime.Throttle.Verdict != report.ThrottleUnknown:
			return nil
		case host == nil && in.Report.Input.DurationNS < shortForFreezes:
			return &lack{report.BlindTime, "too short to see freezes", "whylate record -d 10s -o x.whylate " + url}
		}
		return noHost(url)
	case report.RuleGCTooFrequent, report.RuleForcedGC:
		return nil // the collector is seen whole, also without requests
	}
	if !in.ended() && in.askedFor() {
		return &lack{report.BlindRequests, "nothing matches what was asked for", ""}
	}
	if !in.ended() {
		return &lack{report.BlindRequests, "no request ended", "whylate explain --request FUNCTION " + words.ShellQuote(cmp.Or(in.Report.Input.Name, "TRACE"))}
	}
	switch {
	case code == report.RuleBusyMachine && host == nil:
		return noHost(url)
	case code == report.RuleComputes:
		return fewSamples(samples, url)
	case code == report.RuleRetransmissions && (host == nil || host.Network.Verdict == report.NetworkUnknown || host.Network.Verdict == ""):
		return noHost(url)
	}
	return nil
}

// askedFor reports whether it is what was asked for that is not in the trace: no recording settles that.
func (in *Input) askedFor() bool {
	return slices.ContainsFunc(in.Report.Input.Warnings, func(w report.Warning) bool { return w.Code == "no-group" || w.Code == "no-match" })
}

// ended reports whether any request did.
func (in *Input) ended() bool {
	return slices.ContainsFunc(in.Report.Groups, func(g report.Group) bool { return g.Count > 0 })
}

func fewSamples(n int64, url string) *lack {
	switch {
	case n >= scale.Many:
		return nil
	case n > 0:
		return &lack{report.BlindCPUSamples, fmt.Sprintf("%s only", words.Count(int(n), "CPU sample", "CPU samples")), "whylate record -d 30s -o x.whylate " + url}
	}
	return &lack{report.BlindCPUSamples, "no CPU samples", "whylate record -o x.whylate " + url}
}

func noHost(url string) *lack {
	return &lack{report.BlindHostSamples, "no samples of the host", "whylate record --pid PID -o x.whylate " + url}
}

// recordedURL is where the trace came from, if it says so.
func recordedURL(r *report.Report) string {
	if strings.HasPrefix(r.Input.Name, "http://") || strings.HasPrefix(r.Input.Name, "https://") {
		return words.ShellQuote(r.Input.Name)
	}
	return "URL"
}

// settles returns one command for all that is lacking, as far as a recording can settle it; "" if nothing is.
func settles(r *report.Report, blind []report.Blind) string {
	if len(blind) == 1 {
		return blind[0].Record
	}
	flags := map[string]bool{}
	for i := range blind {
		for _, f := range []string{" -d 30s", " -d 10s", " --pid PID"} {
			flags[f] = flags[f] || strings.Contains(blind[i].Record, f)
		}
	}
	command := ""
	for i := range blind {
		if blind[i].Reason != report.BlindRequests {
			command = "whylate record"
		}
	}
	if command == "" {
		return ""
	}
	switch {
	case flags[" -d 30s"]:
		command += " -d 30s"
	case flags[" -d 10s"]:
		command += " -d 10s"
	}
	if flags[" --pid PID"] {
		command += " --pid PID"
	}
	return command + " -o x.whylate " + recordedURL(r)
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

// shortForFreezes is a time in which a quota's freezes are too few to be told from others (docs/throttling.md), in ns.
const shortForFreezes = 3e9

// maxCodes bounds the codes that are spelled out for one lack.
const maxCodes = 4
