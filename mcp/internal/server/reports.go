package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/whylate/whylate/report"
)

// maxReports bounds the stored reports.
const maxReports = 16

// reports stores the newest reports by an id, which identifies the recording and the arguments.
type reports struct {
	mu   sync.Mutex
	list []storedReport // the newest last
}

type storedReport struct {
	id     string
	report *report.Report
}

// add stores a report as the newest one, in place of one with the same id. The oldest of more than maxReports is dropped.
func (r *reports) add(k storedReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(o storedReport) bool { return o.id == k.id })
	r.list = append(r.list, k)
	if len(r.list) > maxReports {
		r.list = slices.Delete(r.list, 0, 1)
	}
}

// get returns the stored report with an id. The error says what to call if there is none.
func (r *reports) get(id string) (storedReport, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.list, func(k storedReport) bool { return k.id == id })
	if i < 0 {
		return storedReport{}, fmt.Errorf("there is no report %q (the last %d are kept): call explain first and pass its \"report\"", id, maxReports)
	}
	return r.list[i], nil
}

// explain returns the report on a file and stores it. An unchanged file is not read again.
func (s *Server) explain(ctx context.Context, source string, args []string) (storedReport, error) {
	if isURL(source) {
		return storedReport{}, fmt.Errorf("%s is an address: call record first, then explain the file that it names", source)
	}
	path, err := s.policy.resolveFile(source)
	if err != nil {
		return storedReport{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return storedReport{}, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %q", path, info.Size(), info.ModTime().UnixNano(), args))
	id := hex.EncodeToString(sum[:5])
	if k, err := s.reports.get(id); err == nil {
		return k, nil
	}
	rep := new(report.Report)
	if err := s.verbs.run(ctx, 0, rep, slices.Concat([]string{"explain", "--json", "--max-memory", childMemory}, args, []string{"--", path})...); err != nil {
		return storedReport{}, err
	}
	k := storedReport{id, rep}
	s.reports.add(k)
	return k, nil
}

// findGroup finds a group by its id, its name, or a unique part of its name; the first one for "". The error lists the names to choose from.
func (k *storedReport) findGroup(name string) (*report.Group, error) {
	gs := k.report.Groups
	if name == "" && len(gs) > 0 {
		return &gs[0], nil
	}
	var found []*report.Group
	for i := range gs {
		if gs[i].ID == name || gs[i].Name == name {
			return &gs[i], nil
		}
		if strings.Contains(gs[i].Name, name) {
			found = append(found, &gs[i])
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("no group is called %q; there are: %s", name, groupNames(gs))
	}
	return nil, fmt.Errorf("several groups match %q; name one of: %s", name, groupNames(gs))
}

// groupNames returns the names of at most maxGroups groups, separated by commas.
func groupNames(gs []report.Group) string {
	list := []string{}
	for i := range gs[:min(len(gs), maxGroups)] {
		list = append(list, shorten(gs[i].Name, maxName))
	}
	return strings.Join(list, ", ")
}
