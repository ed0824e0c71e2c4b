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
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// compile computes what the changes are about in a group.
func (m *Model) compile(groupID string, changes []Change) *trial {
	t := &trial{model: m}
	for i := range changes {
		c := trialChange{Change: m.resolveCalls(groupID, changes[i])}
		if c.Setting.Name != "" {
			if c.effect, _, _ = m.PredictSetting(c.Setting); c.effect == nil {
				c.effect = new(effect) // refused: Validate returns the reason
			}
			c.weights = m.effectWeights(c.effect)
		} else if c.isAboutCollector() && m.facts != nil {
			c.effect = &effect{changesGC: true, cycles: variantValues{c.Scale, c.Scale, c.Scale}, assist: unchanged}
			c.weights = m.effectWeights(c.effect)
		} else {
			c.weights, c.matcher = m.targetWeights(&c.Change)
			if m.facts != nil {
				c.procs = float64(m.facts.Procs)
			}
			if c.Kind == report.ChangeSlots || c.isAboutOthers() {
				c.waits = make(map[tracefmt.StackID]bool)
			}
		}
		t.changes = append(t.changes, c)
	}
	for i := range t.changes {
		if c := &t.changes[i]; c.Kind == report.ChangeSlots {
			c.slots = t.measureSlots(c.Count)
		}
	}
	return t
}

// targetWeights returns, by target id, the share of its time that a change is about, and the matcher of its site.
func (m *Model) targetWeights(c *Change) ([]float64, *siteMatcher) {
	matcher := m.parseSite(c.Site)
	out, isMet := make([]float64, len(m.targets)), false
	for i, p := range m.targets {
		if c.includes(&p) {
			out[i] = m.matchShare(matcher, p, c.Cause != "" || c.Kind == report.ChangeReuse || matcher.line != 0)
			isMet = isMet || out[i] > 0
		}
	}
	if matcher.caller == nil || isMet {
		return out, matcher
	}
	// The line started the goroutine or is on a path that no wait shows. The work may be that of any line.
	anyLine := *c
	anyLine.Site, _, _ = strings.Cut(c.Site, callerSeparator)
	return m.targetWeights(&anyLine)
}

// A siteMatcher is the parsed text of a Change's site.
type siteMatcher struct {
	matchesAny  bool
	function    string
	file        string
	line        int
	matchByFunc map[tracefmt.StringID]bool // cached results for function names
	caller      *siteMatcher               // the caller's site; nil: any
}

// parseSite parses the site of a Change.
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

// hasNameSuffix reports whether a name ends in a suffix that begins at a word.
func hasNameSuffix(name, suffix string) bool {
	rest, ok := strings.CutSuffix(name, suffix)
	return ok && (rest == "" || strings.ContainsAny(rest[len(rest)-1:], "./"))
}

// matches reports whether a site is the one that the matcher names.
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
		matched = hasNameSuffix(m.syms.String(fr.Func), matcher.function)
		matcher.matchByFunc[fr.Func] = matched
	}
	return matched
}

// matchShare returns the share of a target's time that a site has; includesWaits: also as the site of a wait that the target ends.
func (m *Model) matchShare(matcher *siteMatcher, place target, includesWaits bool) float64 {
	if matcher.matchesAny {
		return 1
	}
	switch isAtSite := place.site != 0 && m.matches(matcher, place.site); {
	case isAtSite || m.isInStack(matcher, place.stack):
		return oneIf(m.mayComeFrom(matcher, &place))
	case place.cause != cause.CPU || place.connects:
		isBehind := func(wait tracefmt.StackID) bool { return m.isInStack(matcher, wait) }
		return oneIf(includesWaits && slices.ContainsFunc(place.waits[:], isBehind) && m.mayComeFrom(matcher, &place))
	case place.stack != 0 && !place.stackIsNear:
		return 0
	}
	// Running time without its own stack is divided as the CPU samples below the same function.
	nsBySite, total := m.sitesBelow(m.syms.Frame(place.site).Func)
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

// mayComeFrom reports whether a place may have come from the line that a matcher names as the caller.
func (m *Model) mayComeFrom(matcher *siteMatcher, place *target) bool {
	if matcher.caller == nil || m.syms.Frame(place.site).Caller != 0 {
		return true // else matches has decided
	}
	isFrom := func(stack tracefmt.StackID) bool { return m.isInStack(matcher.caller, stack) }
	isUnknown := place.stack == 0 && place.waits == waitStacks{} || slices.Contains(place.waits[:], unknownWait)
	return isUnknown || isFrom(place.stack) || slices.ContainsFunc(place.waits[:], isFrom)
}

// isInStack reports whether a frame of a stack is the site that a matcher names.
func (m *Model) isInStack(matcher *siteMatcher, stack tracefmt.StackID) bool {
	return stack != 0 && stack != unknownWait && slices.ContainsFunc(m.syms.Stack(stack), func(f tracefmt.FrameID) bool { return m.matches(matcher, f) })
}

// Validate returns an error, with similar names, if a change is about nothing in any group. For a setting it returns a note
// with the basis of the prediction, or a Refusal if the trace does not show enough.
func (m *Model) Validate(change *Change) (note string, err error) {
	m.prepare()
	if change.Setting.Name != "" {
		_, note, err = m.PredictSetting(change.Setting)
		return note, err
	}
	for _, g := range m.groups {
		trial := m.compile(g.id, []Change{*change})
		if !trial.meets(g) {
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

// suggestions returns names of targets that are similar to the change's site, or else those with the most time.
func (m *Model) suggestions(change *Change) []string {
	nsByName := map[string]float64{}
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[id]
		for i := range g.graphs {
			graph := &g.graphs[i]
			for k := range graph.intervals {
				iv := &graph.intervals[k]
				if iv.site == 0 || change.Site == "" && !change.includesCause(iv.cause) {
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

// editDistance is the Levenshtein distance.
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
