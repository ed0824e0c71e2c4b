package capacity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/report"
)

// A Change is a change of package predict, or of the load or the number of CPUs (as a Setting).
type Change struct {
	predict.Change
	text string
}

// Names of settings. Package predict has the others.
const (
	loadPerS   = "load"
	loadFactor = "load, relative to that of the recording"
	cpus       = "cpus"
)

// String formats a change as --what-if accepts it.
func (c Change) String() string { return c.text }

// Parse parses load=2x, load=1500, cpus=8, or any change of package predict.
func Parse(text string) (Change, error) {
	text = strings.TrimSpace(text)
	name, value, _ := strings.Cut(text, "=")
	if name != loadPerS && name != cpus {
		c, err := predict.Parse(text)
		return Change{c, c.String()}, err
	}
	number, isFactor := strings.CutSuffix(value, "x")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n > 0 && n < 1e9) || isFactor && name == cpus {
		return Change{}, fmt.Errorf("what-if %q: write load=2x, load=1500 or cpus=8", text)
	}
	if isFactor {
		name = loadFactor
	}
	return Change{predict.Set(name, n), text}, nil
}

// applyChanges applies the changes to the resources. perSecond is today's load. It returns the new load in requests a second if
// a change sets it, else 0, and an error if a change is not possible.
func (a *analysis) applyChanges(changes []Change, perSecond float64) (load float64, err error) {
	for _, c := range changes {
		switch name := c.Setting.Name; name {
		case loadPerS:
			load = c.Setting.Value
		case loadFactor:
			load = c.Setting.Value * perSecond
		case cpus, predict.GOMAXPROCS, predict.Quota:
			err = a.changeCPU(c.Setting)
		case "":
			err = a.changeSite(&c)
		default:
			err = fmt.Errorf("what-if %s: a recording does not show how it changes the CPU time of a request; whylate sweep measures it", c)
		}
		if err != nil {
			return 0, err
		}
	}
	return load, nil
}

// changeCPU sets the servers of the CPU resource to another number of CPUs, GOMAXPROCS or quota. The smallest of the three is
// the limit. It returns an error if the recording does not show the CPU time.
func (a *analysis) changeCPU(s predict.Setting) error {
	i := slices.IndexFunc(a.resources, (*resource).isCPU)
	if i < 0 {
		return fmt.Errorf("what-if: the recording does not show the CPU time of a request")
	}
	r, n, procs := a.resources[i], s.Value, float64(a.in.Stats.Procs)
	switch {
	case s.Name == predict.Quota:
		if r.kind, r.servers = report.LimitQuota, n; n >= procs {
			r.kind, r.servers = report.LimitCPU, procs
		}
	case r.kind == report.LimitQuota && n >= r.servers: // the quota stays
	case s.Name == cpus || a.in.Facts.CPUs == 0:
		r.kind, r.servers = report.LimitCPU, n
	default:
		r.kind, r.servers = report.LimitCPU, min(n, a.in.Facts.CPUs)
	}
	return nil
}

// changeSite applies a change to the first resource at its site: slots set the number of servers (an error for a lock), an unlock
// removes it, and a time, also one of a site at which it is held, scales its service time, where a length in ns never makes it
// longer. An error without such a resource lists the sites there are.
func (a *analysis) changeSite(c *Change) error {
	for i, r := range a.resources {
		switch {
		case r.site == nil:
		case c.Kind == report.ChangeSlots && matches(c.Site, r.site):
			if r.kind == report.LimitLock {
				return fmt.Errorf("what-if %s: a lock has one holder at a time", c)
			}
			r.servers = float64(c.Count)
			return nil
		case c.Kind == report.ChangeUnlock && matches(c.Site, r.site):
			a.resources = slices.Delete(a.resources, i, i+1)
			return nil
		case c.Kind == "" && (matches(c.Site, r.site) || a.isHeldAt(c.Site, r)):
			meanNS, _ := meanAndVariance(r.service)
			factor := c.Scale
			if !c.Relative {
				factor = min(1, float64(c.To)/max(meanNS, 1))
			}
			r.factor, r.busy = factor, r.busy*factor
			return nil
		}
	}
	var sites []string
	for _, r := range a.resources {
		if r.site != nil {
			sites = append(sites, predict.SiteText(r.site, ""))
		}
	}
	return fmt.Errorf("what-if %s: no limit is at that site; limits are at: %s", c, strings.Join(sites, ", "))
}

// isHeldAt reports whether goroutines that hold the resource spend time at the site that text names.
func (a *analysis) isHeldAt(text string, r *resource) bool {
	syms := a.in.Speller.Syms
	for heldLine := range r.lines {
		if matches(text, &report.Site{Func: syms.String(heldLine.Func), File: syms.String(heldLine.File), Line: int(heldLine.Number)}) {
			return true
		}
	}
	return false
}

// matches reports whether a text names a site: a function or the end of its name, function:line, or file.go:line.
func matches(text string, site *report.Site) bool {
	number := ":" + strconv.Itoa(site.Line)
	return strings.HasSuffix(site.Func, text) || strings.HasSuffix(site.Func+number, text) || strings.HasSuffix(site.File+number, text)
}
