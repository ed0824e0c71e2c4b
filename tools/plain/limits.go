package main

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// A figure is one rate of a measure, rounded to a tenth.
type figure struct {
	name  string
	value float64
	unit  string
}

// figures returns the measured figures. Their names begin with scope: program or tests.
func (m *measure) figures(scope string) []figure {
	tenth := func(x float64) float64 { return math.Round(10*x) / 10 }
	return []figure{
		{scope + ".functions", tenth(m.functions.per(100)), "% of names"},
		{scope + ".types", tenth(m.types.per(100)), "% of names"},
		{scope + ".fields", tenth(m.fields.per(100)), "% of names"},
		{scope + ".locals", tenth(m.locals.per(100)), "% of names"},
		{scope + ".comments", tenth(m.comments.per(1e4)), "phrases in 10,000 words"},
	}
}

// limits are upper bounds of figures, by name.
type limits map[string]float64

// readLimits reads lines of a name and a number.
func readLimits(file string) (limits, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	bounds := make(limits)
	for line := range strings.Lines(string(data)) {
		var name string
		var bound float64
		if _, err := fmt.Sscan(line, &name, &bound); err != nil {
			return nil, fmt.Errorf("%s: %q is not a name and a number: %w", file, strings.TrimSpace(line), err)
		}
		bounds[name] = bound
	}
	return bounds, nil
}

// lower returns the limits with those lowered that a figure is below. A figure without a limit gets one.
func (l limits) lower(figures []figure) limits {
	lowered := maps.Clone(l)
	for _, f := range figures {
		if bound, ok := l[f.name]; !ok || f.value < bound {
			lowered[f.name] = f.value
		}
	}
	return lowered
}

// format returns the limits as a file that readLimits reads.
func (l limits) format() []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(l)) {
		fmt.Fprintf(&out, "%s %.1f\n", name, l[name])
	}
	return out.Bytes()
}
