package catalog

import "fmt"

// Findings has the findings expected of a service, by rule code ("whylate rules").
type Findings struct {
	// First are codes of which one must come first. If empty, there must be no finding above info.
	First []string `json:"first"`
	// Crowded are codes that are also right if, by the host samples, threads waited for CPUs that other processes used.
	Crowded []string `json:"crowded,omitempty"`
	// Info marks a service whose first finding has severity info: then only AlsoAllowed may be above info.
	Info bool `json:"info,omitempty"`
	// AlsoAllowed are codes that may be above info in addition to the first. All others must not.
	AlsoAllowed []string `json:"beside,omitempty"`
	// Facts are codes that must be found with severity info.
	Facts []string `json:"facts,omitempty"`
	// Sites are right for the first finding. If empty, those of the Truth are. An empty Site is that of a finding about the
	// whole process.
	Sites []Site `json:"sites,omitempty"`
	// AnyShare marks a first finding whose share is not that of the Truth's cause.
	AnyShare bool `json:"any_share,omitempty"`
	// Reason explains why several codes are right or the share is not judged.
	Reason string `json:"why,omitempty"`
}

// findings returns the expected findings of each service. A service without an entry is not judged.
func findings() map[string]*Findings {
	all := map[string]*Findings{}
	for _, family := range []map[string]*Findings{schedulingFindings(), waitingFindings()} {
		for name, f := range family {
			if f.First == nil {
				f.First = []string{}
			}
			all[name] = f
		}
	}
	return all
}

// attachFindings gives each service its Findings.
func attachFindings(all []*Service) error {
	unattached := findings()
	for _, s := range all {
		s.Findings = unattached[s.Name]
		if f := s.Findings; f != nil && len(f.Sites) == 0 && s.Truth.UserSite != nil {
			// If the fault is in a library, the line of the service that calls it is right as well.
			f.Sites = append([]Site{s.Truth.Site, *s.Truth.UserSite}, s.Truth.OrSites...)
		}
		delete(unattached, s.Name)
	}
	for name := range unattached {
		return fmt.Errorf("findings are stated for %s, which is no service", name)
	}
	return nil
}
