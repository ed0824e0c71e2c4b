package predict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/report"
)

// A Change makes a cause at a site smaller. whylate.Change describes the fields without a comment.
type Change struct {
	Cause    report.CauseName
	Site     string
	To       time.Duration
	Scale    float64
	Relative bool
	Setting  Setting
	// OwnWork says that all of it is done for the request itself, on whichever goroutine: no queue of others gets shorter.
	OwnWork bool
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

// includesCause reports whether the change is about a cause.
func (c *Change) includesCause(x cause.Cause) bool {
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

// instanceFactor returns by what an instance of the given length is multiplied. lateNS is by how much a sleep was longer than
// others at its target, which remains if the sleep is shortened; it is negative for anything but a sleep.
func (c *Change) instanceFactor(fullNS, lateNS int64) variantValues {
	factors := unchanged
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

// String formats the change as --what-if accepts it.
func (c Change) String() string {
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
// gone; or a setting: GOGC=400, GOMEMLIMIT=900MiB, GOMAXPROCS=2, quota=1.5.
func Parse(text string) (Change, error) {
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
