package capacity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/report"
)

// A Change is a change of the load or of the service. At most one of the fields is set.
type Change struct {
	PerS   float64 // load, in requests a second
	Factor float64 // load, relative to that of the recording
	CPUs   float64
	predict.Change
}

// String formats a change as --what-if accepts it.
func (c Change) String() string {
	switch {
	case c.PerS > 0:
		return "load=" + strconv.FormatFloat(c.PerS, 'g', -1, 64)
	case c.Factor > 0:
		return "load=" + strconv.FormatFloat(c.Factor, 'g', -1, 64) + "x"
	case c.CPUs > 0:
		return "cpus=" + strconv.FormatFloat(c.CPUs, 'g', -1, 64)
	}
	return c.Change.String()
}

// Parse parses a change: load=2x, load=1500, cpus=8, or a change of package predict.
func Parse(text string) (Change, error) {
	name, value, _ := strings.Cut(strings.TrimSpace(text), "=")
	if name != "load" && name != "cpus" {
		c, err := predict.Parse(text)
		return Change{Change: c}, err
	}
	factor, isFactor := strings.CutSuffix(value, "x")
	n, err := strconv.ParseFloat(factor, 64)
	if err != nil || !(n > 0 && n < 1e9) || isFactor && name == "cpus" {
		return Change{}, fmt.Errorf("what-if %q: write load=2x, load=1500 or cpus=8", text)
	}
	switch {
	case name == "cpus":
		return Change{CPUs: n}, nil
	case isFactor:
		return Change{Factor: n}, nil
	}
	return Change{PerS: n}, nil
}

// applyChanges changes the resources. It returns the new load, 0 if none is.
func (a *analysis) applyChanges(changes []Change, loadPerS float64) (load float64, err error) {
	for _, c := range changes {
		switch name := c.Setting.Name; {
		case c.PerS > 0:
			load = c.PerS
		case c.Factor > 0:
			load = c.Factor * loadPerS
		case c.CPUs > 0, name == predict.GOMAXPROCS, name == predict.Quota:
			err = a.changeCPU(max(c.CPUs, c.Setting.Value), c.CPUs > 0, name == predict.Quota)
		case name != "":
			err = fmt.Errorf("what-if %s: a recording does not show how it changes the CPU time of a request; whylate sweep measures it", c)
		default:
			err = a.changeSite(&c)
		}
		if err != nil {
			return 0, err
		}
	}
	return load, nil
}

func (a *analysis) changeCPU(n float64, isMachine, isQuota bool) error {
	i := slices.IndexFunc(a.resources, func(r *resource) bool { return r.kind == report.LimitCPU || r.kind == report.LimitQuota })
	if i < 0 {
		return fmt.Errorf("what-if: the recording does not show the CPU time of a request")
	}
	r, procs := a.resources[i], float64(a.in.Stats.Procs)
	switch {
	case isQuota:
		if r.kind, r.servers = report.LimitQuota, n; n >= procs {
			r.kind, r.servers = report.LimitCPU, procs
		}
	case r.kind == report.LimitQuota && n >= r.servers: // the quota stays
	case isMachine || a.in.Facts.CPUs == 0:
		r.kind, r.servers = report.LimitCPU, n
	default:
		r.kind, r.servers = report.LimitCPU, min(n, a.in.Facts.CPUs)
	}
	return nil
}

// changeSite changes the resource at a site, or what its holders do there.
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
			meanNS, _ := moments(r.service)
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

// isHeldAt reports whether holders of a resource are at a site while they hold it.
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
