package predict

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A siteMatcher is the parsed text of a Change's site.
type siteMatcher struct {
	matchesAny  bool
	function    string
	file        string
	line        int
	matchByFunc map[tracefmt.StringID]bool // cached results for function names
	caller      *siteMatcher               // the caller's site; nil: any
}

// parseSite parses the site of a Change: a function, all functions of a package (PACKAGE.*), FILE:LINE or FUNCTION:LINE, optionally
// followed by " from " and the caller. Empty text matches any site.
func (m *Model) parseSite(text string) *siteMatcher {
	text, caller, limited := strings.Cut(text, callerSeparator)
	matcher := &siteMatcher{matchesAny: text == "", function: text, matchByFunc: make(map[tracefmt.StringID]bool)}
	if limited {
		matcher.caller = m.parseSite(caller)
	}
	if i := strings.LastIndexByte(text, ':'); i > 0 {
		if n, err := strconv.Atoi(text[i+1:]); err == nil && n > 0 {
			matcher.file, matcher.line, matcher.function = text[:i], n, ""
		}
	}
	return matcher
}

// hasNameSuffix reports whether a name ends in a suffix that begins after a dot, after a slash, or at the name's start.
func hasNameSuffix(name, suffix string) bool {
	rest, ok := strings.CutSuffix(name, suffix)
	return ok && (rest == "" || strings.ContainsAny(rest[len(rest)-1:], "./"))
}

// matches reports whether a source line, or the line that called it, is the one that the matcher names. If the matcher names a
// caller, both must match.
func (m *Model) matches(matcher *siteMatcher, f tracefmt.FrameID) bool {
	switch caller := m.syms.Frame(f).Caller; {
	case caller == 0:
		return m.matchesFrame(matcher, f) // its caller is unknown: a wait led to it
	case matcher.caller != nil:
		return m.matchesFrame(matcher, f) && m.matchesFrame(matcher.caller, caller)
	default:
		return m.matchesFrame(matcher, f) || m.matchesFrame(matcher, caller)
	}
}

// matchesFrame reports whether a frame is at the line, or in the function, that the matcher names.
func (m *Model) matchesFrame(matcher *siteMatcher, f tracefmt.FrameID) bool {
	fr := m.syms.MethodOfWrapper(f)
	if matcher.line != 0 {
		return int(fr.Line) == matcher.line &&
			(hasNameSuffix(m.syms.String(fr.File), matcher.file) || hasNameSuffix(m.syms.String(fr.Func), matcher.file))
	}
	matched, ok := matcher.matchByFunc[fr.Func]
	if !ok {
		fn := m.syms.String(fr.Func)
		if pkg, isPackage := strings.CutSuffix(matcher.function, ".*"); isPackage {
			matched = hasNameSuffix(stdlib.Package(fn), pkg)
		} else {
			matched = hasNameSuffix(fn, matcher.function)
		}
		matcher.matchByFunc[fr.Func] = matched
	}
	return matched
}

// matchedShare returns the share of a target's time at the site that the matcher names: 1 or 0, but running time without a stack
// is divided as the CPU samples below the same function. includesWaits: the site may also be that of a wait which the target's
// work ended.
func (m *Model) matchedShare(matcher *siteMatcher, t target, includesWaits bool) float64 {
	if matcher.matchesAny {
		return 1
	}
	switch isAtSite := t.site != 0 && m.matches(matcher, t.site); {
	case isAtSite || m.isInStack(matcher, t.stack):
		return oneIf(m.mayComeFrom(matcher, &t))
	case t.cause != cause.CPU || t.opensConnection:
		isBehind := func(wait tracefmt.StackID) bool { return m.isInStack(matcher, wait) }
		return oneIf(includesWaits && slices.ContainsFunc(t.waits[:], isBehind) && m.mayComeFrom(matcher, &t))
	case t.stack != 0 && !t.stackIsNear:
		return 0
	}
	// Running time without its own stack is divided as the CPU samples below the same function.
	nsBySite, total := m.sitesBelow(m.syms.Frame(t.site).Func)
	if total == 0 {
		return 0
	}
	var matchedNS int64
	for f, ns := range nsBySite {
		if m.matches(matcher, f) {
			matchedNS += ns
		}
	}
	return float64(matchedNS) / float64(total)
}

// mayComeFrom reports whether the caller that the matcher names may have led to a target whose site, stack or wait it matches: it is the
// site's caller, the stack or the waits of the target contain it, or they are not known. It is true if the matcher names no caller.
func (m *Model) mayComeFrom(matcher *siteMatcher, t *target) bool {
	siteCaller := m.syms.Frame(t.site).Caller
	if matcher.caller == nil || siteCaller != 0 && m.matchesFrame(matcher.caller, siteCaller) {
		return true
	}
	isFrom := func(stack tracefmt.StackID) bool { return m.isInStack(matcher.caller, stack) }
	isUnknown := siteCaller == 0 && (t.stack == 0 && t.waits == waitStacks{} || slices.Contains(t.waits[:], unknownWait))
	return isUnknown || isFrom(t.stack) || slices.ContainsFunc(t.waits[:], isFrom)
}

// isInStack reports whether a frame of a stack is the site that a matcher names.
func (m *Model) isInStack(matcher *siteMatcher, stack tracefmt.StackID) bool {
	return stack != 0 && stack != unknownWait && slices.ContainsFunc(m.syms.Stack(stack), func(f tracefmt.FrameID) bool { return m.matches(matcher, f) })
}

// Validate returns an error, with similar names, if a change affects no sampled request of any group. For a setting it returns
// a note with the basis of the prediction, or a Refusal if the trace does not show enough.
func (m *Model) Validate(change *Change) (note string, err error) {
	m.Prepare()
	if change.Setting.Name != "" {
		_, note, err = m.PredictSetting(change.Setting)
		return note, err
	}
	for _, g := range m.groups {
		if m.isAboutBacklog(g, change) {
			return "", nil
		}
	}
	for _, g := range m.groups {
		trial := m.compile(g.id, []Change{*change})
		if !trial.affects(g) {
			continue
		}
		if c := &trial.changes[0]; c.slots != nil {
			return "", m.refuseSlots(c)
		}
		return "", nil
	}
	message := "no request of the sample spent time"
	if text := missingByKind[change.Kind]; text != "" {
		message = text
	} else if change.Cause == Queue {
		message = "no request of the sample waited for others to be served"
	} else if change.Cause != "" {
		message += " on " + string(change.Cause)
	}
	if change.Site != "" {
		message += " at " + change.Site
	}
	if change.Cause == "" && isCause(report.CauseName(change.Site)) {
		message += "; all time of a cause, at any site, is " + change.Site + "@"
	} else if names := m.suggestions(change); len(names) > 0 {
		message += "; it has " + strings.Join(names, ", ")
	}
	return "", fmt.Errorf("what-if %s: %s", change, message)
}

// missingByKind says what no request of the sample did, for changes that are not about time.
var missingByKind = map[report.ChangeKind]string{
	report.ChangeSlots:    "no request of the sample waited for a slot",
	report.ChangeUnlock:   "no request of the sample waited for a lock or slot that was held during work",
	report.ChangeCalls:    "no request of the sample made several calls",
	report.ChangeParallel: "no request of the sample made several calls",
	report.ChangeReuse:    "no request of the sample opened a connection",
}

// maxSuggestions bounds the names in an error.
const maxSuggestions = 5

// suggestions returns at most maxSuggestions targets as CAUSE@NAME for an error message: those whose names are most similar to
// the change's site, then those with the most time.
func (m *Model) suggestions(change *Change) []string {
	nsByName := map[string]float64{}
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[id]
		for graph := range entry.Each(g.graphs) {
			for iv := range entry.Each(graph.intervals) {
				if iv.site == 0 || change.Site == "" && !change.affectsCause(iv.cause) {
					continue
				}
				fr := m.syms.MethodOfWrapper(iv.site)
				name := path.Base(m.syms.String(fr.Func))
				if strings.Contains(change.Site, ":") {
					name = path.Base(m.syms.String(fr.File)) + ":" + strconv.Itoa(int(fr.Line))
				}
				nsByName[iv.cause.String()+"@"+name] += graph.weight * float64(iv.ns)
			}
		}
	}
	wanted := path.Base(strings.ToLower(change.Site))
	distances := map[string]int{}
	for n := range nsByName {
		_, site, _ := strings.Cut(strings.ToLower(n), "@")
		switch {
		case wanted == "":
		case strings.Contains(site, wanted) || strings.Contains(wanted, site[strings.LastIndexByte(site, '.')+1:]):
			distances[n] = 0
		default:
			distances[n] = min(editDistance(site[strings.LastIndexByte(site, '.')+1:], wanted[strings.LastIndexByte(wanted, '.')+1:]), 4)
		}
	}
	names := slices.SortedFunc(maps.Keys(nsByName), func(a, b string) int {
		return cmp.Or(cmp.Compare(distances[a], distances[b]), cmp.Compare(nsByName[b], nsByName[a]), cmp.Compare(a, b))
	})
	return names[:min(len(names), maxSuggestions)]
}

// editDistance returns the Levenshtein distance of two strings, in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
