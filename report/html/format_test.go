package html_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// formatCases returns cases for the functions of page/format.js, with the results of the corresponding functions of package words.
func formatCases() map[string][][2]any {
	cases := map[string][][2]any{}
	add := func(name string, in any, want string) { cases[name] = append(cases[name], [2]any{in, want}) }
	var numbers []int64
	for _, step := range []int64{1, 7, 999, 1234, 9994, 9996, 99_949, 99_960, 999_499, 999_500, 999_600, 1125, 1135, 1375, 10_250, 10_750, 100_500, 1_004_999, 59_940_000, 59_949_999_999, 59_950_000_000, 72_345_000_000, 3_599_400_000_000, 3_600_000_000_000, 7_261_000_000_000} {
		numbers = append(numbers, step, step*10, step*1000)
	}
	for _, n := range append(numbers, 0) {
		add("duration", n, words.Duration(n))
		add("rough", n, words.Rough(n))
		add("number", n, words.Number(n))
		add("bytes", n, words.Bytes(n))
	}
	add("duration", -1_500_000, words.Duration(-1_500_000))
	for _, share := range []float64{0, 0.0001, 0.00499, 0.005, 0.0051, 0.0126, 0.015, 0.12, 0.125, 0.135, 0.375, 0.994, 0.996, 1, 1.5} {
		add("percent", share, words.PercentOr0(share))
	}
	for _, fn := range []string{"main.run", "example.org/shop.(*DB).get", "gopkg.in/yaml%2ev3.Unmarshal", "example.org/bar/v2.F", "example.org/a/b.Map[go.shape.int,example.org/x/y.T].Get", "v2.F", "a/v2.F", "x/vet.F", "GET /orders/{id}"} {
		add("shortFunc", fn, words.FuncName(fn))
	}
	return cases
}

// TestPageFormats compares the page's numbers and names with those of package words: text and page of one report must not differ in a
// digit or a unit.
func TestPageFormats(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("the page's module is run by node, which is not installed")
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"format.js":    mustRead(t, "page/format.js"),
		"package.json": []byte(`{"type":"module"}`),
		"main.js": []byte(`import * as format from './format.js';
import { readFileSync } from 'node:fs';
const results = {};
for (const [name, cases] of Object.entries(JSON.parse(readFileSync(0, 'utf8')))) results[name] = cases.map(c => format[name](c[0]));
process.stdout.write(JSON.stringify(results));`),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	cases := formatCases()
	in := must.Have(json.Marshal(cases))(t)
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(dir, "main.js"))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out := must.Have(cmd.Output())(t)
	var formatted map[string][]string
	must.Do(t, json.Unmarshal(out, &formatted))
	for name, list := range cases {
		for i, c := range list {
			if n, ok := c[0].(int64); ok && n > 1<<53 && math.MaxInt64 > n {
				continue // JavaScript's integers are exact only up to 2^53
			}
			check.True(t, formatted[name][i] == c[1], "%s of %v is %q on the page, %q in the text", name, c[0], formatted[name][i], c[1])
		}
	}
}
