package compare

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

func TestItselfIsEmpty(t *testing.T) {
	for seed := range uint64(5) {
		g := shop(3e6).group(seed)
		r := reportOf("a", g, load{"main.other", report.KindTask, 10, 7, shop(0).request}.group(seed))
		d := Reports(r, r)
		must.True(t, d.IsEmpty() && len(d.Warnings) == 0, "seed %d: a report differs from itself: %+v", seed, d)
		for _, g := range d.Groups {
			for _, c := range []Change{g.Mean, g.P50, g.P90} {
				check.True(t, c.Delta != nil && *c.Delta == 0 && *c.Low <= 0 && *c.High >= 0, "seed %d: %s changed by %+v", seed, g.Name, c)
			}
		}
	}
}

// TestAntisymmetric: exchanging the sides changes only the signs.
func TestAntisymmetric(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20 {
		a := reportOf("a", load{"main.shop", report.KindHTTP1, 2 + rng.IntN(9), 5 + rng.IntN(100), shop(rng.Float64() * 5e6).request}.group(rng.Uint64()))
		b := reportOf("b", load{"main.shop", report.KindHTTP1, 2 + rng.IntN(9), 5 + rng.IntN(100), shop(rng.Float64() * 5e6).request}.group(rng.Uint64()))
		a.Groups = append(a.Groups, report.Group{ID: "x", Name: "x"})
		for _, r := range []*report.Report{a, b} {
			for k := range r.Groups[0].Bands { // lines move, functions have several rows
				for j := range r.Groups[0].Bands[k].Causes {
					c := &r.Groups[0].Bands[k].Causes[j]
					c.Site.Line += rng.IntN(3)
					if rng.IntN(2) == 0 {
						c.Site.Func = "main.all"
						c.Cause = "network"
					}
				}
			}
		}
		ab, ba := Reports(a, b), Reports(b, a)
		exchangeSides(ba)
		ab.Warnings = nil // they name the sides
		x, _ := json.Marshal(ab)
		y, _ := json.Marshal(ba)
		must.True(t, bytes.Equal(x, y), "case %d: there\n%s\nand back\n%s", i, x, y)
	}
}

// exchangeSides exchanges the sides of a diff.
func exchangeSides(d *Diff) {
	d.Old, d.New = d.New, d.Old
	d.Appeared, d.Vanished = d.Vanished, d.Appeared
	d.Warnings = nil
	neg := func(p *int64) *int64 {
		if p == nil {
			return nil
		}
		v := -*p
		return &v
	}
	for i := range d.Groups {
		g := &d.Groups[i]
		g.OldCount, g.NewCount, g.OldOpen, g.NewOpen = g.NewCount, g.OldCount, g.NewOpen, g.OldOpen
		for _, c := range []*Change{&g.Mean, &g.P50, &g.P90, &g.P99} {
			c.Old, c.New = c.New, c.Old
			c.Delta, c.Low, c.High = neg(c.Delta), neg(c.High), neg(c.Low)
			if c.Episodes != nil {
				c.Episodes = &Episodes{Old: c.Episodes.New, New: c.Episodes.Old, Chance: c.Episodes.Chance}
			}
		}
		for _, rows := range [][]Row{g.Causes, g.Tail} {
			for j := range rows {
				r := &rows[j]
				r.OldSite, r.NewSite, r.OldNS, r.NewNS = r.NewSite, r.OldSite, r.NewNS, r.OldNS
				r.DeltaNS, r.LowNS, r.HighNS = -r.DeltaNS, neg(r.HighNS), neg(r.LowNS)
			}
		}
	}
}

func TestGrowthIsFound(t *testing.T) {
	d := Reports(reportOf("a", shop(0).group(1)), reportOf("b", shop(3e6).group(2)))
	g := &d.Groups[0]
	first := &g.Causes[0]
	must.True(t, g.Changed && g.Mean.Evidence && first.Cause == "sleep" && first.Site().Func == "main.backoff" && first.Evidence && first.OldSite == nil,
		"a sleep of 3 ms was added; got %+v, first %+v", g, first)
	if math.Abs(float64(first.DeltaNS)-3e6) > 3e5 || *g.Mean.Low > 3e6 || *g.Mean.High < 3e6 {
		t.Errorf("3 ms were added; row %d, interval of the mean %d to %d", first.DeltaNS, *g.Mean.Low, *g.Mean.High)
	}
	var sum int64
	for _, r := range g.Causes {
		sum += r.DeltaNS
	}
	if abs(sum-*g.Mean.Delta) > int64(len(g.Causes))+1 {
		t.Errorf("the rows add up to %d, the mean changed by %d", sum, *g.Mean.Delta)
	}
	for _, r := range g.Causes[1:] {
		check.False(t, r.Evidence, "nothing else changed, but %+v", r)
	}
}

// TestMovedTime: time moves between the sites of a cause, whose sum stays the same.
func TestMovedTime(t *testing.T) {
	site := func(fn string) load {
		nap := noisy(5e6)
		return load{"main.h", report.KindHTTP1, 10, 100, func(rng *rand.Rand, _ float64) []spent {
			return []spent{{"sleep", fn, 30, nap(rng)}, {"cpu", "main.h", 1, 1e6}}
		}}
	}
	d := Reports(reportOf("a", site("main.a").group(1)), reportOf("b", site("main.b").group(2)))
	found := map[string]bool{}
	for _, r := range d.Groups[0].Causes {
		if r.Evidence {
			found[r.Site().Func] = true
		}
	}
	if d.Groups[0].Mean.Evidence || !reflect.DeepEqual(found, map[string]bool{"main.a": true, "main.b": true}) {
		t.Errorf("want evidence of two rows and none of the mean, got %v and %+v", found, d.Groups[0].Mean)
	}
}

func TestSmallChangeAmongNoise(t *testing.T) {
	found := 0
	for seed := range uint64(10) {
		d := Reports(reportOf("a", shop(0).group(seed)), reportOf("b", shop(1.5e6).group(seed+100)))
		if d.Groups[0].Mean.Evidence {
			found++
		}
	}
	check.True(t, found >= 9, "an eighth more latency was seen in %d of 10 pairs", found)
}

func TestTooShort(t *testing.T) {
	short := func(sleep float64) *report.Report {
		r := reportOf("s", load{"main.shop", report.KindHTTP1, 1, 100, shop(sleep).request}.group(1))
		r.Input.DurationNS = 1e9
		return r
	}
	d := Reports(short(0), short(50e6))
	g := &d.Groups[0]
	check.True(t, !g.Changed && g.Mean.Low == nil && g.Mean.Delta != nil, "four stretches are no evidence: %+v", g)
	check.True(t, len(d.Warnings) == 1 && d.Warnings[0].Code == "short", "warnings %+v", d.Warnings)
}

func TestRareWaitIsNoEvidence(t *testing.T) {
	rare := func(n int) load {
		remaining := n
		return load{"main.h", report.KindHTTP1, 10, 100, func(rng *rand.Rand, position float64) []spent {
			parts := []spent{{"cpu", "main.h", 1, 1e6}}
			if remaining > 0 && position > 5 {
				remaining--
				parts = append(parts, spent{"syscall", "main.flush", 9, 100e6})
			}
			return parts
		}}
	}
	d := Reports(reportOf("a", rare(1).group(1)), reportOf("b", rare(3).group(1)))
	if r := d.Groups[0].Causes[0]; r.Cause != "syscall" || r.Evidence {
		t.Errorf("one and three requests of a thousand are no evidence: %+v", r)
	}
}

// TestEpisodes: two stops that make 3 % of the requests slow may be chance, which the numbers of episodes show.
func TestEpisodes(t *testing.T) {
	stopped := func(stops bool) load {
		return load{"main.h", report.KindHTTP1, 10, 100, func(_ *rand.Rand, second float64) []spent {
			if stops && (second >= 2.2 && second < 2.35 || second >= 7.1 && second < 7.25) {
				return []spent{{"syscall", "main.flush", 9, 100e6}}
			}
			return []spent{{"cpu", "main.h", 1, 1e6}}
		}}
	}
	g := &Reports(reportOf("a", stopped(true).group(1)), reportOf("b", stopped(false).group(1))).Groups[0]
	must.True(t, !g.P99.Evidence && g.P99.Episodes != nil, "p99 %+v", g.P99)
	check.Equal(t, *g.P99.Episodes, Episodes{Old: 2, Chance: 0.5}, "episodes")
	check.True(t, g.P50.Episodes == nil && g.Mean.Episodes == nil, "p50 %+v, mean %+v", g.P50, g.Mean)
}

// TestChance compares the sign test with tables of the binomial distribution: 0 of 7 is 2/128, 1 of 6 is 14/64; a part of a third has 2 of 2
// once in nine times.
func TestChance(t *testing.T) {
	for _, c := range []struct {
		old, new     int
		part, chance float64
	}{{7, 0, 0.5, 2. / 128}, {0, 4, 0.5, 1. / 8}, {5, 1, 0.5, 14. / 64}, {2, 2, 0.5, 1}, {0, 0, 0.5, 1}, {2, 0, 1. / 3, 2. / 9}} {
		got := chance(c.old, c.new, c.part)
		check.True(t, math.Abs(got-c.chance) < 1e-9, "%d and %d: %v, want %v", c.old, c.new, got, c.chance)
	}
	check.True(t, chance(0, 4, 0.5) <= maxHintChance && chance(5, 1, 0.5) > maxHintChance, "the limit is four to none")
}

func TestGroupsAreMatched(t *testing.T) {
	g := func(id string, kind report.Kind, name string) report.Group {
		return report.Group{ID: id, Kind: kind, Name: name, Count: 1}
	}
	old := reportOf("a", g("1", "http1", "a"), g("2", "http1", "b"), g("3", "http1", "gone"))
	new := reportOf("b", g("2", "http1", "b"), g("9", "http1", "a"), g("4", "grpc", "gone"))
	d := Reports(old, new)
	if len(d.Groups) != 2 || len(d.Appeared) != 1 || d.Appeared[0].Kind != "grpc" || len(d.Vanished) != 1 || d.Vanished[0].ID != "3" || d.IsEmpty() {
		t.Errorf("%+v", d)
	}
}

func TestRowsAreMatchedAcrossEdits(t *testing.T) {
	band := func(lines ...int) *report.Band {
		b := &report.Band{Count: 1}
		for i, l := range lines {
			b.Causes = append(b.Causes, report.Cause{Cause: "sleep", Site: &report.Site{Func: "f", File: "x.go", Line: l}, TotalNS: int64(i+1) * 100})
		}
		return b
	}
	for _, c := range []struct {
		name     string
		old, new *report.Band
		want     map[[2]int]bool
	}{
		{"same line first", band(10, 20), band(20, 12), map[[2]int]bool{{20, 20}: true, {10, 12}: true}},
		{"all moved", band(10, 30), band(15, 35), map[[2]int]bool{{10, 15}: true, {30, 35}: true}},
		{"one gone", band(10, 30), band(30), map[[2]int]bool{{10, 0}: true, {30, 30}: true}},
		{"one new", band(30), band(29, 31), map[[2]int]bool{{30, 29}: true, {0, 31}: true}},
	} {
		got := map[[2]int]bool{}
		for _, r := range compareRows(c.old, c.new) {
			var k [2]int
			for i, s := range []*report.Site{r.OldSite, r.NewSite} {
				if s != nil {
					k[i] = s.Line
				}
			}
			got[k] = true
		}
		check.True(t, reflect.DeepEqual(got, c.want), "%s: paired %v, want %v", c.name, got, c.want)
	}
}

// TestStudentQuantile: values of the tables, e.g. Abramowitz and Stegun, table 26.10.
func TestStudentQuantile(t *testing.T) {
	for _, c := range []struct {
		p    float64
		df   int
		want float64
	}{{0.975, 1, 12.706}, {0.975, 2, 4.303}, {0.995, 5, 4.032}, {0.995, 10, 3.169}, {0.995, 39, 2.708}, {0.975, 120, 1.980}} {
		if got := studentQuantile(c.p, c.df); math.Abs(got-c.want) > 0.001 {
			t.Errorf("t(%v, %d) = %v, want %v", c.p, c.df, got, c.want)
		}
	}
}

// TestHostileNumbers: a report may contain any numbers; none causes a panic, an endless loop or a value that JSON does not
// have.
func TestHostileNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	odd := []int64{0, -1, 1, math.MaxInt64, math.MinInt64, 1 << 40}
	pick := func() int64 { return odd[rng.IntN(len(odd))] }
	tries := 200
	if testing.Short() {
		tries = 30
	}
	for range tries {
		made := func() *report.Report {
			g := shop(1e6).group(rng.Uint64())
			for i := range g.Blocks {
				b := &g.Blocks[i]
				b.Count, b.TotalNS, b.StartNS = int(pick()), pick(), pick()
				b.Histogram = append(b.Histogram, [2]int64{pick(), pick()})
				b.Causes["sleep"] = pick()
			}
			for i := range g.Bands {
				g.Bands[i].Count = int(pick())
				g.Bands[i].Causes[0].TotalNS, g.Bands[i].Causes[0].Requests = pick(), int(pick())
			}
			*g.LatencyNS.Mean = pick()
			r := reportOf("\x1b[2J\u202e", g)
			r.Input.DurationNS, r.Input.GOMAXPROCS = pick(), int(pick())
			return r
		}
		d := Reports(made(), made())
		must.Have(json.Marshal(d))(t)
	}
}

func BenchmarkReports(b *testing.B) {
	l := shop(1e6)
	l.seconds, l.rate = 60, 500
	old, new := reportOf("a", l.group(1)), reportOf("b", l.group(2))
	for b.Loop() {
		Reports(old, new)
	}
}
