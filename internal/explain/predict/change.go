package predict

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// A Change is a change of the service. whylate.Change describes the fields without a comment.
type Change struct {
	Kind     report.ChangeKind // "" for ChangeTime, ChangeShare, and settings: the other fields say which
	Count    int               // of ChangeSlots and ChangeCalls, also when that is resolved to a share
	Cause    report.CauseName
	Site     string
	To       time.Duration
	Scale    float64
	Relative bool
	Setting  Setting
	// OwnWork: all affected time is work for the request itself, on whichever goroutine, so that no queue of other requests
	// gets shorter.
	OwnWork bool
	// WithWrites: the system calls below the line that the site is called from, by which the calls are sent, change as the waits do.
	WithWrites bool
}

// SiteText formats a site of a report for Change.Site: the function for running time, else the line.
func SiteText(site *report.Site, cause report.CauseName) string {
	if cause == report.CauseCPU || site.Line == 0 {
		return site.Func
	}
	text := site.Func + ":" + strconv.Itoa(site.Line)
	if from := site.CalledFrom; from != nil {
		text += callerSeparator + from.Func + ":" + strconv.Itoa(from.Line)
	}
	return text
}

// PackageText formats all functions of a function's package for Change.Site, called from another function unless that is "".
func PackageText(fn, caller string) string {
	text := stdlib.Package(fn) + ".*"
	if caller != "" {
		text += callerSeparator + caller
	}
	return text
}

// callerSeparator precedes the line that called a dependency.
const callerSeparator = " from "

// Halve returns a change that halves every instance.
func Halve(cause report.CauseName, site string) Change {
	return Change{Cause: cause, Site: site, Relative: true, Scale: 0.5}
}

// Remove returns a change that removes a cause at a site.
func Remove(cause report.CauseName, site string) Change {
	return Change{Cause: cause, Site: site, Relative: true}
}

// Slots returns a change that gives the pool for which requests wait at a site so many slots.
func Slots(site string, count int) Change {
	return Change{Kind: report.ChangeSlots, Site: site, Count: count}
}

// Unlock returns a change after which the work at a site is no longer done while a lock or slot is held.
func Unlock(site string) Change { return Change{Kind: report.ChangeUnlock, Site: site} }

// Calls returns a change after which each request makes so many calls from a site.
func Calls(site string, count int) Change {
	return Change{Kind: report.ChangeCalls, Site: site, Count: count}
}

// Parallel returns a change after which a request makes its calls from a site at the same time.
func Parallel(site string) Change { return Change{Kind: report.ChangeParallel, Site: site} }

// Reuse returns a change after which no connection is opened at a site.
func Reuse(site string) Change { return Change{Kind: report.ChangeReuse, Site: site} }

// Set returns the change of a setting, such as GOMAXPROCS, to a value.
func Set(name string, value float64) Change { return Change{Setting: Setting{name, value}} }

// Queue is the Cause of changes to the time that requests wait for others that are served before them.
const Queue = "queue"

// families are the causes of report.FamilyGC and report.FamilySched.
var families = map[report.CauseName][]cause.Cause{
	report.FamilyGC:    {cause.GCAssist, cause.GCWait, cause.STW},
	report.FamilySched: {cause.Sched, cause.SchedWake, cause.SchedPoll},
}

// isCause reports whether a name may be a Change's cause.
func isCause(name report.CauseName) bool {
	return name == Queue || name != report.CauseOther && report.Family(name) != nil
}

// affectsOnlyOthersWork reports whether the change is only about work for others that the request waits for.
func (c *Change) affectsOnlyOthersWork() bool {
	return c.Cause == Queue || c.Kind == report.ChangeUnlock
}

// isFewerCollections reports whether the change is fewer collections of all kinds: then waits for Ps that the collector takes
// change, too.
func (c *Change) isFewerCollections() bool {
	return c.Kind == "" && c.Cause == report.FamilyGC && c.Site == "" && c.Relative
}

// mayAffect reports whether the change can affect time with a target's cause. matchedShare compares the site.
func (c *Change) mayAffect(t *target) bool {
	switch c.Kind {
	case report.ChangeSlots: // the waits of which the waker is not known
		return t.cause == cause.Lock || t.cause == cause.Chan
	case report.ChangeReuse:
		return t.opensConnection
	case report.ChangeCalls, report.ChangeParallel:
		return false // see resolveCalls
	}
	return c.affectsCause(t.cause)
}

// affectsCause reports whether the change affects time with a cause: its own cause, a cause of its family (gc, sched), or any
// if it names none.
func (c *Change) affectsCause(x cause.Cause) bool {
	if c.Cause == "" || c.Cause == Queue {
		return true
	}
	if f := families[c.Cause]; f != nil {
		return slices.Contains(f, x)
	}
	return x.String() == string(c.Cause)
}

// A timer for which the kernel must wake the process is late by up to a millisecond and the wake-up, because epoll counts in
// milliseconds; by 0.4 ms in the median (measured on Linux 6, Go 1.26).
var lateness = variantValues{est: 0.4e6, low: 0, high: 1.1e6}

// instanceFactor returns the factor by which the change multiplies one wait, sleep or computation of length fullNS: 1 leaves
// it, 0 removes it. lateNS is how much longer a sleep was than the usual sleep at its line; a shorter sleep stays as late, so
// this part does not shrink. lateNS is -1 for anything but a sleep.
func (c *Change) instanceFactor(fullNS, lateNS int64) variantValues {
	factors := unchanged
	switch c.Kind {
	case report.ChangeUnlock, report.ChangeReuse:
		return variantValues{}
	case report.ChangeSlots, report.ChangeCalls, report.ChangeParallel:
		return factors // see slotsEffect and resolveCalls
	}
	if c.Relative {
		s := min(max(c.Scale, 0), 1)
		for variant := range factors {
			if factors[variant] = s; lateNS > 0 && s > 0 && variant != low {
				factors[variant] = s + (1-s)*float64(lateNS)/float64(fullNS)
			}
		}
		return factors
	}
	if c.To <= 0 {
		return variantValues{}
	}
	for variant := range factors {
		to := float64(c.To)
		if lateNS >= 0 {
			to += lateness[variant]
			if variant != low {
				to = max(to, float64(int64(c.To)+lateNS))
			}
		}
		if to < float64(fullNS) {
			factors[variant] = to / float64(fullNS)
		}
	}
	return factors
}

// Data converts the change to its form in the JSON report, where GOGC=off has the value -1.
func (c Change) Data() report.Change {
	out := report.Change{Kind: c.Kind, Cause: c.Cause, Site: c.Site, Value: float64(c.Count), Text: c.String()}
	switch {
	case c.Setting.Name != "":
		out.Kind, out.Value = report.ChangeKind(c.Setting.Name), c.Setting.Value
		if math.IsInf(out.Value, 1) {
			out.Value = -1
		}
	case c.Kind != "":
	case c.Relative && c.Scale > 0:
		out.Kind, out.Value = report.ChangeShare, c.Scale
	default:
		if out.Kind = report.ChangeTime; !c.Relative {
			out.Value = float64(c.To)
		}
	}
	return out
}

// ChangeOf converts a change from its form in the JSON report. It is the inverse of Data.
func ChangeOf(data *report.Change) Change {
	c := Change{Cause: data.Cause, Site: data.Site}
	switch data.Kind {
	case report.ChangeSlots, report.ChangeCalls:
		c.Kind, c.Count = data.Kind, int(data.Value)
	case report.ChangeUnlock, report.ChangeParallel, report.ChangeReuse:
		c.Kind = data.Kind
	case report.ChangeShare:
		c.Relative, c.Scale = true, data.Value
	case report.ChangeTime:
		c.To, c.Relative = time.Duration(data.Value), data.Value == 0
	default:
		if c.Setting = (Setting{string(data.Kind), data.Value}); data.Value < 0 {
			c.Setting.Value = math.Inf(1)
		}
	}
	return c
}

// String formats the change in the syntax of --what-if, such as sleep@main.go:27=50%. It is the inverse of Parse.
func (c Change) String() string {
	switch c.Kind {
	case report.ChangeSlots, report.ChangeCalls:
		return string(c.Kind) + "@" + c.Site + "=" + strconv.Itoa(c.Count)
	case report.ChangeUnlock, report.ChangeParallel, report.ChangeReuse:
		return string(c.Kind) + "@" + c.Site
	}
	if c.Setting.Name != "" {
		return c.Setting.String()
	}
	s := c.Site
	if c.Cause != "" {
		s = string(c.Cause) + "@" + s
	}
	switch {
	case !c.Relative && c.To > 0:
		return s + "=" + c.To.String()
	case !c.Relative || c.Scale <= 0:
		return s + "=gone"
	}
	return s + "=" + strconv.FormatFloat(c.Scale*100, 'g', 3, 64) + "%"
}

// Parse parses a change: SITE=VALUE or CAUSE@SITE=VALUE, where VALUE is a duration, a percentage of the present length, 0, or
// gone; slots@SITE=N, calls@SITE=N, unlock@SITE, parallel@SITE, or reuse@SITE; or a setting: GOGC=400, GOMEMLIMIT=900MiB,
// GOMAXPROCS=2, quota=1.5. It does not look whether the site exists (Model.Validate).
func Parse(text string) (Change, error) {
	if change, ok, err := parseKind(text); ok {
		return change, err
	}
	i := strings.LastIndexByte(text, '=')
	if i < 0 {
		return Change{}, fmt.Errorf("what-if %q: write SITE=5ms, SITE=50%%, or SITE=gone", text)
	}
	var change Change
	change.Site = strings.TrimSpace(text[:i])
	if set, ok, err := parseSetting(change.Site, strings.TrimSpace(text[i+1:])); ok {
		return Change{Setting: set}, err
	}
	before, after, ok := strings.Cut(change.Site, "@")
	if ok && isCause(report.CauseName(before)) {
		change.Cause, change.Site = report.CauseName(before), after
	}
	if change.Site == "" && change.Cause == "" {
		return Change{}, fmt.Errorf("what-if %q: name a site before the equals sign", text)
	}
	value := strings.TrimSpace(text[i+1:])
	if percent, ok := strings.CutSuffix(value, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(p >= 0 && p <= 100) {
			return Change{}, fmt.Errorf("what-if %q: %q is not a percentage from 0%% to 100%%", text, value)
		}
		change.Relative, change.Scale = true, p/100
		return change, nil
	}
	if value == "gone" || value == "0" {
		change.Relative = true
		return change, nil
	}
	if change.Cause == Queue {
		return Change{}, fmt.Errorf("what-if %q: a queue takes a percentage, or gone", text)
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return Change{}, fmt.Errorf("what-if %q: %q is neither a time such as 5ms, nor a percentage such as 50%%, nor gone", text, value)
	}
	change.To = d
	return change, nil
}

// parseKind parses slots@SITE=N, calls@SITE=N, unlock@SITE, parallel@SITE and reuse@SITE. ok is false if the text has another
// form, which Parse reads. If the kind is one of these and the rest is wrong, ok is true and err is set.
func parseKind(text string) (change Change, ok bool, err error) {
	kind, site, _ := strings.Cut(strings.TrimSpace(text), "@")
	change.Kind = report.ChangeKind(kind)
	switch change.Kind {
	case report.ChangeUnlock, report.ChangeParallel, report.ChangeReuse:
		if change.Site = strings.TrimSpace(site); change.Site == "" || strings.Contains(site, "=") {
			return Change{}, true, fmt.Errorf("what-if %q: write %s@SITE, without a value", text, kind)
		}
		return change, true, nil
	case report.ChangeSlots, report.ChangeCalls:
		i := strings.LastIndexByte(site, '=')
		n, numberErr := strconv.Atoi(strings.TrimSpace(site[i+1:]))
		if i <= 0 || numberErr != nil || n <= 0 || n > 1e9 {
			return Change{}, true, fmt.Errorf("what-if %q: write %s@SITE=N, with a whole number from 1", text, kind)
		}
		change.Site, change.Count = strings.TrimSpace(site[:i]), n
		return change, true, nil
	}
	return Change{}, false, nil
}
