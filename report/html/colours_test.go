package html_test

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// conesMatrices convert linear RGB to the colours that eyes without one kind of cone see (Machado, Oliveira and Fernandes 2009,
// severity 1).
var conesMatrices = map[string][3][3]float64{
	"all cones":    {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
}

// linear converts a colour of the style sheet to linear RGB.
func linear(t *testing.T, hex string) (rgb [3]float64) {
	t.Helper()
	var v [3]uint8
	if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &v[0], &v[1], &v[2]); err != nil {
		t.Fatalf("%q: %v", hex, err)
	}
	for i := range v {
		if c := float64(v[i]) / 255; c <= 0.04045 {
			rgb[i] = c / 12.92
		} else {
			rgb[i] = math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return rgb
}

func luminance(c [3]float64) float64 { return 0.2126729*c[0] + 0.7151522*c[1] + 0.0721750*c[2] }

// lab converts linear RGB, as seen by the given eyes, to CIE L*a*b* (D65).
func lab(c [3]float64, sight [3][3]float64) (out [3]float64) {
	var l [3]float64
	for i, row := range sight {
		l[i] = min(max(row[0]*c[0]+row[1]*c[1]+row[2]*c[2], 0), 1)
	}
	f := func(v float64) float64 {
		if v > 0.008856 {
			return math.Cbrt(v)
		}
		return 7.787*v + 16.0/116
	}
	x := f((0.4124564*l[0] + 0.3575761*l[1] + 0.1804375*l[2]) / 0.95047)
	y := f(luminance(l))
	z := f((0.0193339*l[0] + 0.1191920*l[1] + 0.9503041*l[2]) / 1.08883)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

// Two causes with the same pattern differ by at least these distances: in lightness (grey print, no colour vision), and in colour (CIE
// 1976) for every kind of eyes. Readers confuse adjacent colours that differ by less than 10.
const (
	minGreyDifference   = 10
	minColourDifference = 24
	minTextContrast     = 4.5 // contrast of text on a cause's colour (WCAG 2.2, AA)
)

// TestColours: all readers can distinguish causes, by pattern, else by lightness and colour.
func TestColours(t *testing.T) {
	style := string(mustRead(t, "page/style.css"))
	pattern, colour := map[string]string{}, map[string][4]string{}
	for _, m := range regexp.MustCompile(`(?m)^((?:\.c-[a-z-]+(?:, )?)+) \{ --p: ([a-z-]+\([^;]*); \}`).FindAllStringSubmatch(style, -1) {
		for _, class := range strings.Split(m[1], ", ") {
			pattern[strings.TrimPrefix(class, ".c-")] = m[2]
		}
	}
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\((#\w{6}), (#\w{6})\); --on-[a-z-]+: light-dark\((#\w{6}), (#\w{6})\);`).FindAllStringSubmatch(style, -1) {
		colour[m[1]] = [4]string{m[2], m[3], m[4], m[5]}
	}
	grey, plain, patterns := math.Inf(1), math.Inf(1), map[string]bool{}
	causes := report.Causes()
	for i, a := range causes {
		ca, ok := colour[string(a)]
		must.True(t, ok, "%s has no colour", a)
		patterns[pattern[string(a)]] = true
		drawn := strings.Contains(style, fmt.Sprintf(".c-%[1]s { --c: var(--%[1]s); --on: var(--on-%[1]s); fill: url(#pt-%[1]s); }", a))
		check.Equal(t, drawn, (pattern[string(a)] != ""), "%s has another pattern in pictures than in bars", a)
		if flat := fmt.Sprintf(".flat-%[1]s { fill: var(--%[1]s); } text.on-c-%[1]s { stroke: var(--%[1]s); }", a); drawn && !strings.Contains(style, flat) {
			t.Errorf("the pattern of %s in pictures has no ground: it is black", a)
		}
		for theme := range 2 {
			textLuminance, groundLuminance := luminance(linear(t, ca[2+theme])), luminance(linear(t, ca[theme]))
			if c := (max(textLuminance, groundLuminance) + 0.05) / (min(textLuminance, groundLuminance) + 0.05); c < minTextContrast {
				t.Errorf("text on %s has a contrast of %.1f", a, c)
			}
			for _, b := range causes[:i] {
				if pattern[string(a)] != pattern[string(b)] {
					continue
				}
				firstRGB, secondRGB := linear(t, ca[theme]), linear(t, colour[string(b)][theme])
				for sightName, sight := range conesMatrices {
					p, q := lab(firstRGB, sight), lab(secondRGB, sight)
					d := math.Sqrt((p[0]-q[0])*(p[0]-q[0]) + (p[1]-q[1])*(p[1]-q[1]) + (p[2]-q[2])*(p[2]-q[2]))
					if plain = min(plain, d); d < minColourDifference {
						t.Errorf("%s and %s differ by %.1f for %s, theme %d", a, b, d, sightName, theme)
					}
				}
				d := math.Abs(lab(firstRGB, conesMatrices["all cones"])[0] - lab(secondRGB, conesMatrices["all cones"])[0])
				if grey = min(grey, d); d < minGreyDifference {
					t.Errorf("%s and %s differ by %.1f in grey, theme %d", a, b, d, theme)
				}
			}
		}
	}
	check.Equal(t, len(patterns), 6, "patterns, want 6: %v", patterns)
	t.Logf("causes of one pattern differ by at least %.1f in lightness, %.1f in colour", grey, plain)
}
