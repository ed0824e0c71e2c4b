package compare

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/whylate/whylate/report"
)

// A load generates one group of a report from simulated requests, so that the right result of a comparison is known.
type load struct {
	name    string
	kind    report.Kind
	seconds int
	rate    int // requests a second
	// request gives one request's time by cause row.
	request func(rng *rand.Rand, position float64) []spent
}

type spent struct {
	cause report.CauseName
	fn    string
	line  int
	ns    int64
}

// group adds the requests up as a report does.
func (l load) group(seed uint64) report.Group {
	rng := rand.New(rand.NewPCG(seed, 7))
	g := report.Group{ID: l.name, Name: l.name, Named: true, Kind: l.kind, Count: l.seconds * l.rate}
	type request struct {
		at    float64
		total int64
		parts []spent
	}
	var all []request
	for i := range g.Count {
		r := request{at: float64(i) / float64(l.rate)}
		r.parts = l.request(rng, r.at)
		for _, p := range r.parts {
			r.total += p.ns
		}
		all = append(all, r)
		g.TotalNS += r.total
	}
	for b := 0; b < l.seconds*4; b++ {
		block := report.Block{StartNS: int64(b) * 250e6, DurationNS: 250e6, Causes: map[report.CauseName]int64{}}
		buckets := map[int64]int64{}
		for _, r := range all {
			if int(r.at*4) != b {
				continue
			}
			block.Count++
			block.TotalNS += r.total
			buckets[upper(r.total)]++
			for _, p := range r.parts {
				block.Causes[p.cause] += p.ns
			}
		}
		for u, n := range buckets {
			block.Histogram = append(block.Histogram, [2]int64{u, n})
		}
		slices.SortFunc(block.Histogram, func(a, b [2]int64) int { return int(a[0] - b[0]) })
		if block.Count > 0 {
			g.Blocks = append(g.Blocks, block)
		}
	}
	slices.SortFunc(all, func(a, b request) int { return int(a.total - b.total) })
	quantile := func(q float64, shortest int) *int64 {
		if len(all) < shortest {
			return nil
		}
		v := all[int(q*float64(len(all)-1))].total
		return &v
	}
	mean := g.TotalNS / int64(g.Count)
	g.LatencyNS = report.Latency{Mean: &mean, P50: quantile(0.5, 5), P90: quantile(0.9, 10), P99: quantile(0.99, 100), P999: quantile(0.999, 1000), Max: quantile(1, 1)}
	for _, b := range []struct {
		name   report.BandName
		lo, hi float64
	}{{report.BandAll, 0, 1}, {report.Band5090, 0.5, 0.9}, {report.Band9099, 0.9, 0.99}, {report.Band99, 0.99, 1}} {
		part := all[int(b.lo*float64(len(all))):int(b.hi*float64(len(all)))]
		band := report.Band{Band: b.name, Count: len(part), Causes: []report.Cause{}}
		sums := map[string]*report.Cause{}
		var total int64
		for _, r := range part {
			for _, p := range r.parts {
				key := fmt.Sprint(p.cause, p.fn, p.line)
				c := sums[key]
				if c == nil {
					c = &report.Cause{Cause: p.cause, Site: &report.Site{Func: p.fn, File: "/src/main.go", Line: p.line}}
					sums[key] = c
				}
				if p.ns > 0 {
					c.Requests++
				}
				c.TotalNS += p.ns
				total += p.ns
			}
		}
		for _, c := range sums {
			c.Share = float64(c.TotalNS) / float64(max(total, 1))
			band.Causes = append(band.Causes, *c)
		}
		slices.SortFunc(band.Causes, func(a, b report.Cause) int {
			if a.TotalNS != b.TotalNS {
				return int(b.TotalNS - a.TotalNS)
			}
			return a.Site.Compare(b.Site)
		})
		g.Bands = append(g.Bands, band)
	}
	return g
}

// upper returns the upper bound of a report's bucket: 32 to an octave.
func upper(ns int64) int64 {
	if ns < 32 {
		return ns + 1
	}
	e := bits.Len64(uint64(ns)) - 6
	return (ns>>e + 1) << e
}

func reportOf(name string, groups ...report.Group) *report.Report {
	r := &report.Report{Schema: report.Schema, Groups: groups}
	r.Input = report.Input{Name: name, Go: "1.26", GOMAXPROCS: 4, DurationNS: 10e9}
	r.Host = &report.Host{Lost: report.Lost{PressureNS: new(int64)}} // a quiet machine
	return r
}

// noisy returns a function that spends about mean ns, in gamma-like lumps.
func noisy(mean float64) func(*rand.Rand) int64 {
	return func(rng *rand.Rand) int64 { return int64(mean * (0.6 + 0.2*(rng.ExpFloat64()+rng.ExpFloat64()))) }
}

// shop is a service that computes for about 2 ms and waits for a database for about 10 ms.
func shop(sleep float64) load {
	work, db, nap := noisy(2e6), noisy(10e6), noisy(sleep)
	return load{"main.shop", report.KindHTTP1, 10, 100, func(rng *rand.Rand, _ float64) []spent {
		parts := []spent{{"cpu", "main.render", 10, work(rng)}, {"network", "db.query", 20, db(rng)}}
		if sleep > 0 {
			parts = append(parts, spent{"sleep", "main.backoff", 30, nap(rng)})
		}
		return parts
	}}
}
