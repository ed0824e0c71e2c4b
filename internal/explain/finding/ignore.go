package finding

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/whylate/whylate/report"
)

// An Ignore says that findings are known and why they do not matter.
type Ignore struct {
	Code   string // pattern of codes: WL2001, WL2*
	Site   string // pattern of functions or files (see ReadIgnores)
	Reason string
}

// maxIgnores bounds the lines of a file that ReadIgnores takes.
const maxIgnores = 10000

// ReadIgnores reads one Ignore a line: a code, a site, and the reason, with spaces between. Code and site are patterns in
// which * stands for anything but a slash; a site is a function (main.poll, *.poll), a file (poll.go, store/*.go) or a
// line (poll.go:12), each also without the directories before it; * stands for all. Empty lines and those that begin with
// # are left out. A line without a reason is an error, because the next reader needs it.
func ReadIgnores(r io.Reader, name string) ([]Ignore, error) {
	var out []Ignore
	err := eachLine(r, name, func(f []string) error {
		if len(f) < 3 {
			return errors.New("want CODE SITE REASON, such as: WL2001 store.(*DB).retry the back-off is intended")
		}
		for _, p := range f[:2] {
			if _, err := path.Match(escape(p), ""); err != nil {
				return fmt.Errorf("%q is not a pattern: %w", p, err)
			}
		}
		if !strings.HasPrefix(f[0], "WL") && f[0] != "*" {
			return fmt.Errorf("%q is not a code; `whylate rules` lists them", f[0])
		}
		if len(out) == maxIgnores {
			return fmt.Errorf("more than %d lines", maxIgnores)
		}
		out = append(out, Ignore{f[0], f[1], strings.Join(f[2:], " ")})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Mark notes on findings that were made before why they are ignored.
func Mark(findings []report.Finding, ignored []Ignore) {
	for i := range findings {
		if reason := ignoredBy(ignored, &findings[i]); reason != "" {
			findings[i].Ignored = reason
		}
	}
}

// ignoredBy returns the reason of the first Ignore that fits, or "".
func ignoredBy(all []Ignore, f *report.Finding) string {
	for _, i := range all {
		if ok, _ := path.Match(i.Code, string(f.Code)); ok && i.at(f.Site) {
			return i.Reason
		}
	}
	return ""
}

func (i *Ignore) at(s *report.Site) bool {
	if i.Site == "*" {
		return true
	}
	if s == nil {
		return false
	}
	return s.CalledFrom != nil && i.at(s.CalledFrom.Site()) || matchesEnd(i.Site, s.Func) || matchesEnd(i.Site, s.File) || matchesEnd(i.Site, fmt.Sprintf("%s:%d", s.File, s.Line))
}

// matchesEnd matches a pattern against as many of a name's last elements as it has itself.
func matchesEnd(pattern, name string) bool {
	for range strings.Count(name, "/") - strings.Count(pattern, "/") {
		_, name, _ = strings.Cut(name, "/")
	}
	ok, _ := path.Match(escape(pattern), name)
	return ok
}

// escape takes brackets, which function names of generic code hold, for themselves.
func escape(pattern string) string { return strings.NewReplacer("[", `\[`, "]", `\]`).Replace(pattern) }
