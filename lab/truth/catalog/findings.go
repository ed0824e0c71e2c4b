package catalog

import "fmt"

// Findings is what rules must say about a service. Codes are explained by "whylate rules".
type Findings struct {
	// First are the codes of which one must come first; none: nothing may be found above info.
	First []string `json:"first"`
	// Crowded are codes that are as right where, by the host's samples, threads waited for a CPU that others had.
	Crowded []string `json:"crowded,omitempty"`
	// Info says that the first finding is a fact, not a fault: then nothing but Beside may be found above info.
	Info bool `json:"info,omitempty"`
	// AlsoAllowed are codes that may stand above info beside it. All others must not.
	AlsoAllowed []string `json:"beside,omitempty"`
	// Facts are codes that must be found as info.
	Facts []string `json:"facts,omitempty"`
	// Sites are right for the first finding; none: those of the Truth. An empty one is that of a finding about the whole
	// process.
	Sites []Site `json:"sites,omitempty"`
	// AnyShare says that the first finding's share is not that of the Truth's cause.
	AnyShare bool `json:"any_share,omitempty"`
	// Reason gives the reason where more than one code is right, or the share is not judged.
	Reason string `json:"why,omitempty"`
}

// findings returns what must be found, by service. A service without an entry is not judged.
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
			// Where the fault lies in a library, the line that leads there is as right.
			f.Sites = append([]Site{s.Truth.Site, *s.Truth.UserSite}, s.Truth.OrSites...)
		}
		delete(unattached, s.Name)
	}
	for name := range unattached {
		return fmt.Errorf("findings are stated for %s, which is no service", name)
	}
	return nil
}
