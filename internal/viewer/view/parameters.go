package view

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/whylate/whylate/internal/viewer/inspect"
)

// A parameterError reports an invalid query parameter (status 400).
type parameterError struct{ name, problem string }

func (e *parameterError) Error() string { return e.name + ": " + e.problem }

func newParameterError(name, problem string) error { return &parameterError{name, problem} }

// asParameterError returns an error in the text of the parameter "query" (a QueryError) as a parameterError, for status 400, and
// other errors, also nil, unchanged.
func asParameterError(err error) error {
	if bad, ok := errors.AsType[*inspect.QueryError](err); ok {
		return newParameterError("query", bad.Error())
	}
	return err
}

// parameters parse the query of a request; err is the first error.
type parameters struct {
	values url.Values
	err    error
}

// maxText bounds texts in bytes.
const maxText = 500

// newParameters parses the query of a request. The methods of the result set err for an invalid parameter, unless it is set.
func newParameters(r *http.Request) *parameters {
	v, err := url.ParseQuery(r.URL.RawQuery)
	p := &parameters{values: v}
	if err != nil {
		p.err = newParameterError("query", "cannot be read")
	}
	return p
}

// fail stores an error about the parameter name, unless there is one already.
func (p *parameters) fail(name, format string, args ...any) {
	if p.err == nil {
		p.err = newParameterError(name, fmt.Sprintf(format, args...))
	}
}

// text returns a text; "" without the parameter.
func (p *parameters) text(name string) string {
	v := p.values.Get(name)
	if len(v) > maxText || !utf8.ValidString(v) {
		p.fail(name, "at most %d bytes of UTF-8", maxText)
		return ""
	}
	return v
}

// maxNumber bounds times and counts, so that sums of a few cannot overflow.
const maxNumber = 1 << 60

// number returns a number from 0 to maxNumber; usual without the parameter or after an error.
func (p *parameters) number(name string, usual int64) int64 {
	v := p.values.Get(name)
	if v == "" {
		return usual
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > maxNumber {
		p.fail(name, "want a whole number from 0 to 2^60")
		return usual
	}
	return n
}

// upTo returns the number of the parameter name, which must not exceed limit; usual without the parameter or after an error.
func (p *parameters) upTo(name string, usual, limit int64) int64 {
	n := p.number(name, usual)
	if n > limit {
		p.fail(name, "at most %d", limit)
		return usual
	}
	return n
}

// offset returns the index of the first row of a page.
func (p *parameters) offset() int { return int(p.upTo("offset", 0, 1<<31-1)) }

// limit returns the number of rows of a page.
func (p *parameters) limit() int { return int(p.upTo("limit", 100, inspect.MaxRows)) }

// id returns an unsigned number; 0 without the parameter or after an error.
func (p *parameters) id(name string) uint64 {
	v := p.values.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		p.fail(name, "want a number")
	}
	return n
}

// share returns a number from 0 to 1; 0 without the parameter or after an error.
func (p *parameters) share(name string) float64 {
	v := p.values.Get(name)
	if v == "" {
		return 0
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f >= 0 && f <= 1) {
		p.fail(name, "want a share from 0 to 1")
	}
	return f
}

// flag reports whether the parameter is 1; false without it. A value other than 1, 0 and "" is an error.
func (p *parameters) flag(name string) bool {
	switch p.values.Get(name) {
	case "", "0":
		return false
	case "1":
		return true
	}
	p.fail(name, "want 1 or 0")
	return false
}

// ids returns the numbers of the parameter name, at most limit of them, separated by commas; nil without the parameter or after
// an error.
func (p *parameters) ids(name string, limit int) []uint64 {
	v := p.values.Get(name)
	if v == "" {
		return nil
	}
	parts := strings.SplitN(v, ",", limit+1)
	if len(parts) > limit {
		p.fail(name, "at most %d", limit)
		return nil
	}
	out := make([]uint64, 0, len(parts))
	for _, s := range parts {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			p.fail(name, "want numbers with commas between")
			return nil
		}
		out = append(out, n)
	}
	return out
}
