package finding

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/whylate/whylate/report"
)

// An IgnoreEntry names known findings that do not matter, with the reason.
type IgnoreEntry struct {
	CodePattern string // such as WL2001, WL2*
	SitePattern string // of functions, files or lines, see ReadIgnoreEntries
	Reason      string
}

// maxIgnoreEntries bounds the entries of one file.
const maxIgnoreEntries = 10000

// ReadIgnoreEntries reads one entry a line: a code, a site and the reason, separated by spaces. Code and site are patterns in
// which * matches any text without a slash. A site is a function (main.poll, *.poll), a file (poll.go, store/*.go) or a line
// (poll.go:12), each with or without its directories; * alone matches all sites. Empty lines and lines that begin with # are
// skipped. A line without a reason is an error, because the next reader needs the reason. Errors begin with name, the file's.
func ReadIgnoreEntries(r io.Reader, name string) ([]IgnoreEntry, error) {
	var out []IgnoreEntry
	err := forEachLine(r, name, func(fields []string) error {
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

// MarkIgnored sets the reason why findings are ignored, for those that an entry matches.
func MarkIgnored(findings []report.Finding, entries []IgnoreEntry) {
	for i := range findings {
		if reason := ignoreReason(entries, &findings[i]); reason != "" {
			findings[i].Ignored = reason
		}
	}
}

// ignoreReason returns the reason of the first entry that matches a finding, "" if none does.
func ignoreReason(entries []IgnoreEntry, f *report.Finding) string {
	for _, entry := range entries {
		if ok, _ := path.Match(entry.CodePattern, string(f.Code)); ok && entry.matchesSite(f.Site) {
			return entry.Reason
		}
	}
	return ""
}

// matchesSite reports whether the entry's pattern matches a site, or the site that it was called from.
func (e *IgnoreEntry) matchesSite(s *report.Site) bool {
	if e.SitePattern == "*" {
		return true
	}
	return s != nil && (s.CalledFrom != nil && e.matchesSite(s.CalledFrom.Site()) || matchesEnd(e.SitePattern, s.Func) ||
		matchesEnd(e.SitePattern, s.File) || matchesEnd(e.SitePattern, fmt.Sprintf("%s:%d", s.File, s.Line)))
}

// matchesEnd reports whether a pattern matches the end of a name: as many of its last path elements as the pattern has.
func matchesEnd(pattern, name string) bool {
	for range strings.Count(name, "/") - strings.Count(pattern, "/") {
		_, name, _ = strings.Cut(name, "/")
	}
	ok, _ := path.Match(escapeBrackets(pattern), name)
	return ok
}

// escapeBrackets escapes the brackets of a pattern for path.Match, because names of generic functions contain them.
func escapeBrackets(pattern string) string {
	return strings.NewReplacer("[", `\[`, "]", `\]`).Replace(pattern)
}
