// Package policy reads what an organisation decides about findings: who owns a service, and which findings are muted until when.
// Both are a file, so that they are reviewed and kept like other configuration, and no page of the fleet changes anything.
package policy

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v2"
)

// A Policy is the content of a file.
type Policy struct {
	Owners []Owner `yaml:"owners"` // the first that matches a service owns it
	Mutes  []Mute  `yaml:"mutes"`
}

// An Owner says who is to change a service. Patterns are a name, or its beginning and an asterisk; an empty one matches every name.
type Owner struct {
	Service string `yaml:"service"`
	Owner   string `yaml:"owner"`
}

// A Mute hides findings for a time. All its patterns have to match.
type Mute struct {
	Service     string `yaml:"service"`
	Environment string `yaml:"environment"`
	Rule        string `yaml:"rule"` // a code, such as WL1007
	Site        string `yaml:"site"` // the function and line of a finding, as pages show it
	// LastDay is a day in UTC, as 2027-01-31. A mute without an end would hide that a fault became worse.
	LastDay string `yaml:"until"`
	Reason  string `yaml:"reason"`

	end time.Time
}

// Read reads and checks a file in YAML. An unknown field is an error.
func Read(file string) (*Policy, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := new(Policy)
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, o := range p.Owners {
		if o.Owner == "" {
			return nil, fmt.Errorf("%s: owner %d of %q has no name", file, i+1, o.Service)
		}
	}
	for i := range p.Mutes {
		m := &p.Mutes[i]
		last, err := time.Parse(time.DateOnly, m.LastDay)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: mute %d: until=%q is no day such as 2027-01-31", file, i+1, m.LastDay)
		case m.Reason == "":
			return nil, fmt.Errorf("%s: mute %d has no reason", file, i+1)
		case m.Service+m.Rule+m.Site == "":
			return nil, fmt.Errorf("%s: mute %d names neither a service, a rule nor a site", file, i+1)
		}
		m.end = last.AddDate(0, 0, 1)
	}
	return p, nil
}

// matches reports whether a name is equal to a pattern, or begins as one that ends in * does. The empty pattern matches every
// name.
func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == "" || pattern == name
}

// OwnerOf returns the owner in the first line that matches a service, "" if there is none.
func (p *Policy) OwnerOf(service string) string {
	for _, o := range p.Owners {
		if matches(o.Service, service) {
			return o.Owner
		}
	}
	return ""
}

// OwnerNames returns the names of all owners, each once, in the order of the file.
func (p *Policy) OwnerNames() (names []string) {
	for _, o := range p.Owners {
		if !slices.Contains(names, o.Owner) {
			names = append(names, o.Owner)
		}
	}
	return names
}

// MuteOf returns the first mute that has not ended at instant and matches all four of a finding's service, environment, rule
// and site; nil if there is none.
func (p *Policy) MuteOf(service, environment, rule, site string, instant time.Time) *Mute {
	for i := range p.Mutes {
		m := &p.Mutes[i]
		if instant.Before(m.end) && matches(m.Service, service) && matches(m.Environment, environment) && matches(m.Rule, rule) && matches(m.Site, site) {
			return m
		}
	}
	return nil
}

// A File is a policy that is read again when its file changes. A nil File has no owners and no mutes. Its methods may be called
// concurrently.
type File struct {
	name string
	log  *slog.Logger

	mu       sync.Mutex
	policy   *Policy
	modified time.Time
	size     int64
}

// Open reads the policy in a file for the first time. log receives the errors of later readings.
func Open(name string, log *slog.Logger) (*File, error) {
	f := &File{name: name, log: log}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	f.modified, f.size = info.ModTime(), info.Size()
	f.policy, err = Read(name)
	return f, err
}

// Current returns the policy in the file, which it reads again after a change; an empty one for a nil File. If the file became
// unreadable or wrong, it logs that once and returns the policy before.
func (f *File) Current() *Policy {
	if f == nil {
		return new(Policy)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.name)
	if err == nil && info.ModTime().Equal(f.modified) && info.Size() == f.size || err != nil && f.size < 0 {
		return f.policy
	}
	f.modified, f.size = time.Time{}, -1
	if err == nil {
		f.modified, f.size = info.ModTime(), info.Size()
		var changed *Policy
		if changed, err = Read(f.name); err == nil {
			f.policy = changed
		}
	}
	if err != nil {
		f.log.Error("the policy before it remains in force", "error", err)
	}
	return f.policy
}
