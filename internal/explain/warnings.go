package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/report"
)

// Codes of warnings for a selection that matches nothing: no group has the name, or no request has the call, id or
// time.
const (
	NoGroup = "no-group"
	NoMatch = "no-match"
)

// addWarnings adds warnings about the input: a damaged or incomplete trace, requests without a handler, and selections that match
// nothing.
func (r *reading) addWarnings(rep *report.Report, shown groups.Selection, sp *spell.Speller) {
	decoder := r.pass.Decoder
	warn := func(code, text string) {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: code, Text: text})
	}
	for _, w := range r.pass.Reader.Warnings() {
		warn(w.Code, w.Text)
	}
	if rep.Input.TraceFrom == report.TraceFromUprobes {
		warn("uprobes", "this trace was made from outside the process (whylate record --pid): it does not show Ps, garbage collection, marks and tasks, nor goroutines that did nothing during it, so the report says nothing of them")
	}
	if r.damage != nil {
		warn("truncated", fmt.Sprintf("%v; %s before it are reported", r.damage, plural(r.pass.Generations, "whole generation")))
	}
	if typ, ok := decoder.UnknownType(); ok {
		warn("unknown-event", fmt.Sprintf("this build does not know events of type %d; the rest of %s was left out", typ, plural(int(decoder.Unknown), "batch")))
	}
	if decoder.LateTimes > 0 {
		warn("clock", fmt.Sprintf("%s had impossible times", plural(int(decoder.LateTimes), "event")))
	}
	if decoder.Orphans > 0 {
		warn("lost-events", fmt.Sprintf("%s came without the goroutine or P they belong to and were left out", plural(int(decoder.Orphans), "event")))
	}
	if text := r.iterationText(rep.Groups); text != "" {
		warn("iterations", text)
	}
	for i := range rep.Groups {
		if text := beforeMarksText(&rep.Groups[i]); text != "" {
			warn("before-marks", text)
			break
		}
	}
	if unnamed, all := rep.CountWithoutHandler(); unnamed > 0 {
		warn(report.WarnUnnamedRequests, fmt.Sprintf("%d of %d requests never waited, so the trace does not name their handler: percentiles and gains are those of the others, slower ones; to name all, import service/mark", unnamed, all))
	}
	if from := int64(r.opts.From); from >= rep.Input.DurationNS && from > 0 && len(rep.Groups) == 0 {
		warn(NoMatch, fmt.Sprintf("the part that was asked for begins at %v, and the trace ends after %v", r.opts.From, time.Duration(rep.Input.DurationNS).Round(time.Millisecond)))
		return
	}
	if ids := r.opts.idTexts(); ids != "" && len(rep.Groups) == 0 {
		warn(NoMatch, fmt.Sprintf("no request of %s ended in this recording, or none names it: marks of service/mark do, and tracers that write ids as user logs", ids))
		return
	}
	if all := r.groups.GroupNames(sp, shown); len(rep.Groups) == 0 && r.opts.Group != nil && len(all) > 0 {
		warn(NoGroup, noGroupText(r.opts.Group.String(), all))
		return
	}
	if r.opts.Request != nil && len(rep.Groups) > 0 {
		text := "calls are seen by the events in them: calls that never waited, made no system call and were not interrupted are not counted"
		if n := r.pass.Finder.RepeatedCalls(); n > 0 {
			text += fmt.Sprintf("; %s reached the same line again: in a loop, or as several calls with no event between them, which count as one", plural(n, "call"))
		}
		warn("calls-unseen", text)
	}
	if len(rep.Groups) == 0 {
		if r.opts.Request != nil {
			warn(NoMatch, fmt.Sprintf("no call of a function that matches %q was seen: none waited, made a system call or was interrupted in it, or there was none", r.opts.Request))
		} else {
			warn("no-requests", "no requests were found in this trace: no server handled any, no goroutine did the same work repeatedly; name a function with --request, or record while the service is busy")
		}
	}
}

// noGroupText returns the warning that no group's name matches pattern, with the names of the groups in the trace.
func noGroupText(pattern string, all []groups.NameCount) string {
	const maxNames = 8
	var names []string
	for _, g := range all[:min(maxNames, len(all))] {
		names = append(names, fmt.Sprintf("%s (%s)", g.Name, plural(int(g.Requests), "request")))
	}
	text := fmt.Sprintf("no group's name matches %q; the groups are %s", pattern, strings.Join(names, ", "))
	if len(all) > maxNames {
		text += fmt.Sprintf(", and %d more", len(all)-maxNames)
	}
	return text
}

// beforeMarksText returns a warning if requests of a group spent much time before their marks began (1 ms and half of their p99),
// because their latency does not include it; else "".
func beforeMarksText(g *report.Group) string {
	const minNS = 1_000_000
	if g.BeforeNS == nil {
		return ""
	}
	before, in := *cmp.Or(g.BeforeNS.P99, g.BeforeNS.Max, new(int64)), *cmp.Or(g.LatencyNS.P99, g.LatencyNS.Max, new(int64))
	if before < minNS || before < in/2 {
		return ""
	}
	return fmt.Sprintf("requests of %s were in this process for up to %v before their handler's mark began, which is not in their latency (--no-marks counts it)", g.Name, time.Duration(before).Round(10*time.Microsecond))
}

// plural returns a number with a noun in the singular or plural.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
