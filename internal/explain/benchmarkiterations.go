package explain

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/whylate/whylate/report"
)

// IterationCount is how many iterations a run has.
type IterationCount struct {
	Benchmark string // the name of a benchmark's function; "" means every run
	report.Iterations
}

// ParseIterations parses a number of iterations, or the lines that benchmarks printed, such as "BenchmarkSum-2 40 34123456
// ns/op", in their order. It ignores other lines of the output of go test. Text with neither is an error.
func ParseIterations(text string) ([]IterationCount, error) {
	if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && n > 0 {
		return []IterationCount{{Iterations: report.Iterations{Count: n}}}, nil
	}
	var list []IterationCount
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") || fields[3] != "ns/op" {
			continue
		}
		n, errCount := strconv.Atoi(fields[1])
		eachNS, errEach := strconv.ParseFloat(fields[2], 64)
		if errCount != nil || errEach != nil || n <= 0 {
			continue
		}
		name, _, _ := strings.Cut(fields[0], "/")
		if name == fields[0] { // the suffix is GOMAXPROCS
			name, _, _ = strings.Cut(name, "-")
		}
		list = append(list, IterationCount{name, report.Iterations{Count: n, EachNS: int64(eachNS)}})
	}
	if list == nil {
		return nil, fmt.Errorf("%q is neither a number of iterations nor a line that a benchmark printed, such as BenchmarkSum-2 40 34123456 ns/op", text)
	}
	return list, nil
}

// iterationsOf returns the number and mean duration of a run's iterations, as the user gave them; nil if the group is no run or
// the number is not known.
func (o *Options) iterationsOf(g *report.Group) *report.Iterations {
	for _, c := range o.Iterations {
		if g.Kind != report.KindRun || c.Benchmark != "" && !isNamed(g.Name, c.Benchmark) {
			continue
		}
		iterations := c.Iterations
		if iterations.EachNS == 0 {
			iterations.EachNS = g.TotalNS / int64(iterations.Count)
		}
		return &iterations
	}
	return nil
}

// isNamed reports whether a group is named by a benchmark's function, or by a function literal in it: a sub-benchmark.
func isNamed(group, benchmark string) bool {
	_, name, _ := strings.Cut(group[strings.LastIndexByte(group, '/')+1:], ".")
	name, _, _ = strings.Cut(name, ".")
	return name == benchmark
}

// iterationText returns a warning about how the iterations of a benchmark were divided, or that --iterations could divide them;
// "" if no benchmark ran or its iterations are known.
func (r *reading) iterationText(groups []report.Group) string {
	if !r.pass.Finder.HasBenchmark() {
		return ""
	}
	for i := range groups {
		switch g := &groups[i]; {
		case g.Kind == report.KindLoop:
			return fmt.Sprintf("a wait or system call that repeats regularly separates the iterations of %s; if an iteration has several of them, or few iterations have one, --iterations with the number that go test printed explains the run instead", g.Name)
		case g.Kind == report.KindRun && g.Iterations == nil:
			return fmt.Sprintf("no event shows where an iteration of %s begins, so the whole run is explained; --iterations with the number, or the line, that go test printed divides it", g.Name)
		}
	}
	return ""
}
