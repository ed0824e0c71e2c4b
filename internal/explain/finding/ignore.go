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
type IgnoreEntry struct {
	CodePattern string // pattern of codes: WL2001, WL2*
	SitePattern string // pattern of functions or files (see ReadIgnoreEntries)
	Reason      string
}

// maxIgnoreEntries bounds the lines of a file that ReadIgnoreEntries takes.
const maxIgnoreEntries = 10000

// ReadIgnoreEntries reads one Ignore a line: a code, a site, and the reason, with spaces between. Code and site are patterns in
// which * stands for anything but a slash; a site is a function (main.poll, *.poll), a file (poll.go, store/*.go) or a
// line (poll.go:12), each also without the directories before it; * stands for all. Empty lines and those that begin with
// # are left out. A line without a reason is an error, because the next reader needs it.
func ReadIgnoreEntries(r io.Reader, name string) ([]IgnoreEntry, error) {
	var out []IgnoreEntry
	err := eachLine(r, name, func(fields []string) error {
		if len(fields) < 3 {
			return errors.New("want CODE SITE REASON, such as: WL2001 store.(*DB).retry the back-off is intended")
		}
		for _, pattern := range fields[:2] {
			if _, err := path.Match(escapeBrackets(pattern), ""); err != nil {
				return fmt.Errorf("%q is not a pattern: %w", pattern, err)
			}
		}
		if !strings.HasPrefix(fields[0], "WL") && fields[0] != "*" {
			return fmt.Errorf("%q is not a code; `whylate rules` lists them", fields[0])
		}
		if len(out) == maxIgnoreEntries {
			return fmt.Errorf("more than %d lines", maxIgnoreEntries)
		}
		out = append(out, IgnoreEntry{fields[0], fields[1], strings.Join(fields[2:], " ")})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// MarkIgnored notes on findings that were made before why they are ignored.
func MarkIgnored(findings []report.Finding, entries []IgnoreEntry) {
	for i := range findings {
		if reason := ignoreReason(entries, &findings[i]); reason != "" {
			findings[i].Ignored = reason
		}
	}
}

// ignoreReason returns the reason of the first Ignore that fits, or "".
func ignoreReason(entries []IgnoreEntry, f *report.Finding) string {
	for _, entry := range entries {
		if ok, _ := path.Match(entry.CodePattern, string(f.Code)); ok && entry.matchesSite(f.Site) {
			return entry.Reason
		}
	}
	return ""
}

func (e *IgnoreEntry) matchesSite(s *report.Site) bool {
	if e.SitePattern == "*" {
		return true
	}
	if s == nil {
		return false
	}
	return s.CalledFrom != nil && e.matchesSite(s.CalledFrom.Site()) || matchesEnd(e.SitePattern, s.Func) || matchesEnd(e.SitePattern, s.File) || matchesEnd(e.SitePattern, fmt.Sprintf("%s:%d", s.File, s.Line))
}

// matchesEnd matches a pattern against as many of a name's last elements as it has itself.
func matchesEnd(pattern, name string) bool {
	for range strings.Count(name, "/") - strings.Count(pattern, "/") {
		_, name, _ = strings.Cut(name, "/")
	}
	ok, _ := path.Match(escapeBrackets(pattern), name)
	return ok
}

// escapeBrackets takes brackets, which function names of generic code hold, for themselves.
func escapeBrackets(pattern string) string {
	return strings.NewReplacer("[", `\[`, "]", `\]`).Replace(pattern)
}
