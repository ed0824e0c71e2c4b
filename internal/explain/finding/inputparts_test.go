package finding

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/report"
)

// Where the words of an answer change: a line for each number, flag, list, map, text or pointer of an input that decides it. The line has
// the number from which on the answer differs from that just below, or "none" for an answer without that part, and the difference.

// searchBounds returns these lines for an input. answer finds in it.
func searchBounds(in *Input, answer func() []string) (lines []string) {
	base := answer()
	for _, p := range partsOf("", reflect.ValueOf(in).Elem(), nil) {
		if !p.isNumber() {
			lines = p.appendWithout(lines, base, answer)
			continue
		}
		for _, bound := range p.search(answer) {
			lines = p.appendAt(lines, bound, answer)
		}
	}
	return lines
}

// tryBounds returns the same lines for the parts and numbers of given lines.
func tryBounds(in *Input, knownLines []string, answer func() []string) (lines []string) {
	base, parts := answer(), partsOf("", reflect.ValueOf(in).Elem(), nil)
	for _, line := range knownLines {
		path, rest, _ := strings.Cut(line, " ")
		value, _, _ := strings.Cut(rest, ":")
		i := slices.IndexFunc(parts, func(p inputPart) bool { return p.path == path && p.isNumber() == (value != "none") }) // a pointer has the path of its number
		switch {
		case i < 0:
			lines = append(lines, "the input has no "+path)
		case value == "none":
			lines = parts[i].appendWithout(lines, base, answer)
		default:
			lines = parts[i].appendAt(lines, parts[i].parse(value), answer)
		}
	}
	return lines
}

// An inputPart is a part of an Input that may decide which findings there are.
type inputPart struct {
	path  string
	value reflect.Value
}

// partsOf appends the parts of an Input below a value. Functions and lines of sites are left out.
func partsOf(path string, v reflect.Value, out []inputPart) []inputPart {
	part := inputPart{path, v}
	switch v.Kind() {
	case reflect.Int, reflect.Int64, reflect.Float64, reflect.Bool:
		out = append(out, part)
	case reflect.Map, reflect.Func, reflect.String:
		if !v.IsZero() && !isStructure(path) {
			out = append(out, part)
		}
	case reflect.Pointer:
		if v.IsNil() {
			break
		}
		if path != "Report" && path != "Process" {
			out = append(out, part)
		}
		if _, isSite := v.Interface().(*report.Site); !isSite {
			out = partsOf(path, v.Elem(), out)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out = partsOf(strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), v.Field(i), out)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Len() > 0 && !isStructure(path) {
			out = append(out, part)
		}
		for i := range min(v.Len(), 4) {
			out = partsOf(fmt.Sprintf("%s[%d]", path, i), v.Index(i), out)
		}
	}
	return out
}

// isStructure reports whether an input without the part at a path is no report.
func isStructure(path string) bool {
	switch path[strings.LastIndex(path, ".")+1:] {
	case "Groups", "Bands", "Band", "Causes", "Cause", "Wait", "ID", "Name", "Start", "Func", "File", "Group", "Process":
		return true
	}
	return false
}

func (p *inputPart) isNumber() bool { return p.value.CanInt() || p.value.CanFloat() }

// appendWithout appends how the answer without a part, or with the opposite flag, differs from base.
func (p *inputPart) appendWithout(lines, base []string, answer func() []string) []string {
	return p.restoreAfter(lines, func() string {
		if p.value.Kind() == reflect.Bool {
			p.value.SetBool(!p.value.Bool())
		} else {
			p.value.SetZero()
		}
		return p.lineOf("none", base, answer())
	})
}

// appendAt appends how the answer at a number differs from that just below.
func (p *inputPart) appendAt(lines []string, n int64, answer func() []string) []string {
	return p.restoreAfter(lines, func() string {
		p.set(n - 1)
		lower := answer()
		p.set(n)
		return p.lineOf(p.format(n), lower, answer())
	})
}

// lineOf returns a line for a part: which parts of findings only one of two answers has; "" if there is no difference. Of a finding that
// the other answer lacks it is the rule and severity.
func (p *inputPart) lineOf(value string, from, to []string) string {
	var difference strings.Builder
	write := func(sign string, lines, otherLines []string) {
		for _, line := range lines {
			if slices.Contains(otherLines, line) {
				continue
			}
			name, text, isPart := strings.Cut(line, ": ")
			if code := line[:len("WL1001")]; isPart && !slices.ContainsFunc(otherLines, func(o string) bool { return strings.HasPrefix(o, code) }) {
				continue
			}
			if difference.WriteString(" " + sign + name); strings.HasSuffix(name, "evidence") {
				fmt.Fprintf(&difference, " %.30s", text)
			}
		}
	}
	write("-", from, to)
	write("+", to, from)
	if difference.Len() == 0 {
		return ""
	}
	return p.path + " " + value + ":" + difference.String()
}

// restoreAfter appends the line that f returns, and restores the part that f changes. No line is for an input that no recording has.
func (p *inputPart) restoreAfter(lines []string, f func() string) (out []string) {
	old := reflect.ValueOf(p.value.Interface())
	out = lines
	defer func() {
		p.value.Set(old)
		_ = recover()
	}()
	if line := f(); line != "" {
		out = append(out, line)
	}
	return out
}

// Numbers have the order of integers: a float64 is that of its bits.

func (p *inputPart) order() int64 {
	if p.value.CanInt() {
		return p.value.Int()
	}
	return int64(math.Float64bits(p.value.Float()))
}

func (p *inputPart) set(n int64) {
	if p.value.CanInt() {
		p.value.SetInt(n)
		return
	}
	p.value.SetFloat(math.Float64frombits(uint64(n)))
}

func (p *inputPart) format(n int64) string {
	if p.value.CanInt() {
		return strconv.FormatInt(n, 10)
	}
	return strconv.FormatFloat(math.Float64frombits(uint64(n)), 'g', -1, 64)
}

// isPlain reports whether a number, or the one just below, is written in few digits: others may differ by how a machine rounds.
func (p *inputPart) isPlain(n int64) bool {
	return p.value.CanInt() || min(len(p.format(n)), len(p.format(n-1))) < 8
}

func (p *inputPart) parse(text string) int64 {
	if p.value.CanInt() {
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	f, _ := strconv.ParseFloat(text, 64)
	return int64(math.Float64bits(f))
}

// search returns the numbers from which on the answer is another one: one of each interval between the present number, usual ones, and
// multiples of it.
func (p *inputPart) search(answer func() []string) (bounds []int64) {
	present := p.order()
	tried := []int64{0, 1, 7, present / 2, present, present * 3, present * 40}
	if p.value.CanFloat() {
		tried = []int64{present}
		for _, f := range []float64{0, 0.15, 0.7, 1, 1.4, 9} {
			tried = append(tried, int64(math.Float64bits(f)))
		}
	}
	if p.path == "Report.Input.DurationNS" { // numbers of slots that suffice for a rate without bounds take very long to compute
		tried = []int64{present / 2, present, present * 3, present * 40}
	}
	slices.Sort(tried)
	tried = slices.Compact(tried)
	p.restoreAfter(nil, func() string {
		at := func(n int64) []string { p.set(n); return answer() }
		last := at(tried[0])
		for i := 1; i < len(tried); i++ {
			next := at(tried[i])
			low, high := tried[i-1], tried[i]
			for high-low > 1 && !slices.Equal(last, next) {
				if middle := low + (high-low)/2; slices.Equal(at(middle), last) {
					low = middle
				} else {
					high = middle
				}
			}
			if !slices.Equal(last, next) && p.isPlain(high) {
				bounds = append(bounds, high)
			}
			last = next
		}
		return ""
	})
	return bounds
}
