package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A requirement checks that a recording has the data that a rule needs to be sure where it finds nothing. It returns nil, or
// the data that is missing.
type requirement func(*Input) *missingInput

// A missingInput is data that a recording lacks, and how to get it.
type missingInput struct {
	reason       report.BlindReason
	text         string
	seconds      int    // to record; 0: the default
	onHost       bool   // record on the process's host
	otherCommand string // a command to run instead of a recording
}

// needRequests requires that a request ended in the trace. Rules about the collector and about the recording do not have this
// requirement, because they need no requests.
func needRequests(in *Input) *missingInput {
	switch {
	case slices.ContainsFunc(in.Report.Groups, func(g report.Group) bool { return g.Count > 0 }):
		return nil
	case slices.ContainsFunc(in.Report.Input.Warnings, func(w report.Warning) bool { return w.Code == "no-group" || w.Code == "no-match" }):
		return &missingInput{reason: report.BlindRequests, text: textOf("phrase nothing-matches")} // no command helps
	}
	explain := "whylate explain --request FUNCTION " + words.ShellQuote(cmp.Or(in.Report.Input.Name, "TRACE"))
	return &missingInput{reason: report.BlindRequests, text: textOf("phrase no-request-ended"), otherCommand: explain}
}

// needRuntimeTrace requires a trace of the runtime, which shows Ps and the collector.
func needRuntimeTrace(in *Input) *missingInput {
	if in.Report.Input.TraceFrom == "" {
		return nil
	}
	return &missingInput{reason: report.BlindOutside, text: textOf("phrase made-from-outside")}
}

// needCPUSamples requires threshold.TailSample CPU samples, so that shares of them are accurate.
func needCPUSamples(in *Input) *missingInput {
	switch n := in.Process.Samples.All; {
	case n >= threshold.TailSample:
		return nil
	case n > 0:
		return &missingInput{reason: report.BlindCPUSamples, text: textOf("phrase few-cpu-samples", "samples", words.Count(int(n), textOf("phrase cpu-sample"), textOf("phrase cpu-samples"))), seconds: 30}
	}
	return &missingInput{reason: report.BlindCPUSamples, text: textOf("phrase no-cpu-samples")}
}

// needRunDelays requires a measure of how long threads waited for a CPU: the kernel's counters, or else CPU samples.
func needRunDelays(in *Input) *missingInput {
	if _, ok := runDelayShare(in); ok {
		return nil
	}
	return needCPUSamples(in)
}

// Requirements of samples that whylate record takes on the process's host: of the kernel's counters; of the process's state, which show
// whether a signal or debugger stopped it; and of the segments that its connections retransmitted.
var (
	needHostSamples   = needHost(func(*report.Host) bool { return true })
	needProcessStates = needHost(func(host *report.Host) bool { return host.States })
	needConnections   = needHost(func(host *report.Host) bool {
		return host.Network.Verdict != report.NetworkUnknown && host.Network.Verdict != ""
	})
)

// needHost requires samples of the host that have what a rule needs.
func needHost(suffices func(*report.Host) bool) requirement {
	return func(in *Input) *missingInput {
		if host := in.Report.Host; host != nil && suffices(host) {
			return nil
		}
		return missingHostSamples()
	}
}

// needQuota requires that the recording shows whether a CPU quota throttled the process: by the kernel's counters, or by a trace
// that is long enough.
func needQuota(in *Input) *missingInput {
	switch rep := in.Report; {
	case rep.Runtime.Throttle.Verdict != report.ThrottleUnknown:
		return nil
	case rep.Host == nil && rep.Input.DurationNS < minDurationForFreezes:
		return &missingInput{reason: report.BlindTime, text: textOf("phrase too-short-for-freezes"), seconds: 10}
	}
	return missingHostSamples()
}

// minDurationForFreezes is in ns. In a shorter trace a quota causes too few freezes to distinguish them from others
// (docs/throttling.md).
const minDurationForFreezes = 3e9

// missingHostSamples returns the missing input for a recording without samples of the host.
func missingHostSamples() *missingInput {
	return &missingInput{reason: report.BlindHostSamples, text: textOf("phrase no-host-samples"), onHost: true}
}

// Judge decides for each rule whether it found something, had all data and found nothing (clear), or lacked data (blind). Blind
// rules are grouped by the data that is missing, with a command that gets it.
func Judge(in *Input, rules []Rule, findings []report.Finding) *report.Judged {
	missingInputs := map[report.BlindReason]*missingInput{} // the first one of each reason
	judged := &report.Judged{Rules: len(rules), Found: []report.RuleCode{}, Clear: []report.RuleCode{}, Blind: []report.Blind{}}
	for i := range rules {
		code := rules[i].Code
		if slices.ContainsFunc(findings, func(f report.Finding) bool { return f.Code == code }) {
			judged.Found = append(judged.Found, code)
			continue
		}
		missing := rules[i].firstMissing(in)
		if missing == nil {
			judged.Clear = append(judged.Clear, code)
			continue
		}
		index := slices.IndexFunc(judged.Blind, func(b report.Blind) bool { return b.Reason == missing.reason })
		if index < 0 {
			index = len(judged.Blind)
			judged.Blind = append(judged.Blind, report.Blind{Reason: missing.reason, Text: missing.text, Record: in.commandFor(missing)})
			missingInputs[missing.reason] = missing
		}
		judged.Blind[index].Codes = append(judged.Blind[index].Codes, code)
	}
	slices.SortStableFunc(judged.Blind, func(a, b report.Blind) int {
		return slices.Index(report.BlindReasons(), a.Reason) - slices.Index(report.BlindReasons(), b.Reason)
	})
	judged.Record = in.recordCommand(missingInputs)
	judged.Text = judgedText(judged)
	return judged
}

// firstMissing returns the first data that the rule lacks, or that the rule failed; nil if it lacks none.
func (r *Rule) firstMissing(in *Input) *missingInput {
	if failure := in.failures[r.Code]; failure != "" {
		return &missingInput{reason: report.BlindError, text: textOf("phrase rule-failed", "error", failure)}
	}
	for _, n := range r.requirements {
		if l := n(in); l != nil {
			return l
		}
	}
	return nil
}

// traceURL returns the URL that the trace was recorded from, quoted for a shell, or "URL" if it was none.
func traceURL(r *report.Report) string {
	if strings.HasPrefix(r.Input.Name, "http://") || strings.HasPrefix(r.Input.Name, "https://") {
		return words.ShellQuote(r.Input.Name)
	}
	return "URL"
}

// recordCommand returns one command that gets all missing data, as far as a new recording can get it; "" if none can or nothing
// is missing.
func (in *Input) recordCommand(missing map[report.BlindReason]*missingInput) string {
	var all missingInput
	for _, l := range missing {
		if len(missing) == 1 {
			return in.commandFor(l)
		}
		if l.reason != report.BlindRequests && l.reason != report.BlindError {
			all = missingInput{reason: l.reason, seconds: max(all.seconds, l.seconds), onHost: all.onHost || l.onHost}
		}
	}
	if all.reason == "" {
		return ""
	}
	return in.commandFor(&all)
}

// commandFor returns the command that gets one kind of missing data, "" if no command can.
func (in *Input) commandFor(missing *missingInput) string {
	if missing.reason == report.BlindRequests || missing.reason == report.BlindError {
		return missing.otherCommand
	}
	record := "whylate record"
	if missing.seconds > 0 {
		record += fmt.Sprintf(" -d %ds", missing.seconds)
	}
	if missing.onHost {
		record += " --pid PID"
	}
	return record + " -o x.whylate " + traceURL(in.Report)
}

// MergeJudged combines the results for two services: a rule has found something if it did in one of them, else it is blind if it
// was in one, else it is clear.
func MergeJudged(a, b *report.Judged) *report.Judged {
	out := &report.Judged{Rules: a.Rules, Found: slices.Concat(a.Found, b.Found), Blind: []report.Blind{}, Record: cmp.Or(a.Record, b.Record)}
	slices.Sort(out.Found)
	out.Found = slices.Compact(out.Found)
	judged := slices.Clone(out.Found)
	unjudged := func(codes []report.RuleCode) []report.RuleCode {
		return slices.DeleteFunc(slices.Clone(codes), func(c report.RuleCode) bool { return slices.Contains(judged, c) })
	}
	for _, blind := range slices.Concat(a.Blind, b.Blind) {
		if blind.Codes = unjudged(blind.Codes); len(blind.Codes) > 0 {
			out.Blind, judged = append(out.Blind, blind), append(judged, blind.Codes...)
		}
	}
	out.Clear = unjudged(a.Clear)
	if len(out.Blind) == 0 {
		out.Record = ""
	}
	out.Text = judgedText(out)
	return out
}

// judgedText returns the numbers of rules with each result, and the missing data, as one line.
func judgedText(judged *report.Judged) string {
	results := []string{textOf("phrase rules-found", "n", len(judged.Found)), textOf("phrase rules-clear", "n", len(judged.Clear))}
	blind := 0
	var blindTexts []string
	for b := range each(judged.Blind) {
		blind += len(b.Codes)
		var codes []string
		for _, c := range b.Codes[:min(len(b.Codes), maxCodes)] {
			codes = append(codes, string(c))
		}
		codeText := strings.Join(codes, ", ")
		if n := len(b.Codes) - maxCodes; n > 0 {
			codeText = textOf("phrase more-codes", "codes", codeText, "n", n)
		}
		blindTexts = append(blindTexts, textOf("phrase blind-reason", "reason", b.Text, "codes", codeText))
	}
	if blind > 0 {
		results = append(results, textOf("phrase rules-blind", "n", blind, "reasons", strings.Join(blindTexts, ", ")))
	}
	text := textOf("phrase judged", "rules", words.Count(judged.Rules, textOf("phrase rule"), textOf("phrase rules")), "results", strings.Join(results, ", "))
	if judged.Record != "" {
		text = textOf("phrase judged-with-command", "judged", text, "command", judged.Record)
	}
	return text
}

// maxCodes bounds the codes that are listed for one kind of missing data.
const maxCodes = 4
