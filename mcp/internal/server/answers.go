package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/report"
)

// maxAnswer bounds an answer, in bytes of JSON. JSON of this kind has 3 to 4 bytes per token, so an
// answer stays below the 8,000 tokens that docs/assistants.md promises.
const maxAnswer = 22 << 10

// Bounds on the parts of an answer. The tools for single requests, sources and rules return the rest of a report.
const (
	maxFindings = 8
	maxVerdicts = 3
	maxGroups   = 12
	maxEvidence = 5
	maxWarnings = 6
	maxSegments = 40
	maxText     = 700 // characters of a sentence
	maxName     = 160 // characters of a name
	maxFailure  = 1500
)

// shorten removes control characters from a recording's text and limits it to max columns.
func shorten(text string, max int) string { return termtext.Head(text, max) }

// escapeInvisible escapes invisible characters in all texts that v points to: control characters other
// than line ends and tabs, and characters that change the direction of writing. The name of a file
// with such a character is shown, but cannot be passed back.
func escapeInvisible[T any](v T) T {
	escapeTexts(reflect.ValueOf(v))
	return v
}

var lineText = regexp.MustCompile(`[^\n\t]+`)

// escapeTexts escapes, line by line, all strings in a value, through pointers, structs and slices, in place.
func escapeTexts(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			escapeTexts(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			escapeTexts(field)
		}
	case reflect.Slice:
		for i := range v.Len() {
			escapeTexts(v.Index(i))
		}
	case reflect.String:
		v.SetString(lineText.ReplaceAllStringFunc(v.String(), termtext.Escape))
	}
}

// clientError returns a tool's error with its text shortened, so that it is safe to show to a client; nil for nil.
func clientError(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(shorten(err.Error(), maxFailure))
}

// jsonSize returns the number of bytes of v in JSON.
func jsonSize(v any) int {
	b, _ := json.Marshal(v)
	return len(b)
}

// groupName returns the name of the group with an id, shortened; "" if the report has none.
func groupName(r *report.Report, id string) string {
	if g := r.Group(id); g != nil {
		return shorten(g.Name, maxName)
	}
	return ""
}

// siteText returns a site with its full function and file, which the tool source and an editor need; "" for nil.
func siteText(s *report.Site) string {
	if s == nil || s.Func == "" {
		return ""
	}
	text := fmt.Sprintf("%s (%s:%d)", s.Func, s.File, s.Line)
	if c := s.CalledFrom; c != nil {
		text += fmt.Sprintf(", %s%s (%s:%d)", names.CallerLead(c), c.Func, c.File, c.Line)
	}
	return shorten(text, 2*maxName)
}
