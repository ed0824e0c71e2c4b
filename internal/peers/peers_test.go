package peers

import (
	"math/rand/v2"
	"testing"
)

const us, ms = int64(1e3), int64(1e6)

// TestCompare makes waits and requests by hand. It would catch requests of others taken for answers because somebody always
// waits, and answers that are not believed because they are short beside the wait.
func TestCompare(t *testing.T) {
	// asked makes n waits, each with the request that answers it.
	asked := func(n int, apart, wait, takes int64) (waits, served []span) {
		rnd := rand.New(rand.NewPCG(1, 2))
		at := int64(0)
		for range n {
			at += apart + rnd.Int64N(apart)
			lead := rnd.Int64N(max(1, (wait-takes)/2))
			waits = append(waits, span{start: at, end: at + wait})
			served = append(served, span{start: at + lead, end: at + lead + takes})
		}
		return waits, served
	}
	others := func(n int, apart, takes int64) (served []span) {
		rnd := rand.New(rand.NewPCG(3, 4))
		at := int64(0)
		for range n {
			at += rnd.Int64N(2 * apart)
			served = append(served, span{start: at, end: at + takes})
		}
		return served
	}
	waits, served := asked(200, 4*ms, ms, 700*us)
	_, quick := asked(200, 4*ms, ms, 3*us)
	busy, crowd := asked(400, 100*us, 2*ms, ms)
	for _, c := range []struct {
		name          string
		waits, served []span
		least, most   float64
	}{
		{"each wait has its answer in it", waits, served, 0.9, 0.95},
		{"answers are far shorter than the waits", waits, quick, 0.85, 0.95},
		{"others come at random", waits, others(200, 5*ms, 700*us), 0, 0},
		{"others come all the time", waits, others(5000, 200*us, 100*us), 0, 0},
		{"half of the waits are for somebody else", waits, served[:100], 0, 0},
		{"somebody always waits, and the numbers are the same", busy, crowd, 0.6, 0.95},
		{"somebody always waits, and there are more requests", busy, append(others(60, 900*us, ms), crowd...), 0, 0.95},
		{"somebody always waits, and others come at random", busy, others(300, 200*us, 100*us), 0, 0},
		{"too few", waits[:10], served[:10], 0, 0},
	} {
		if len(c.waits) < fewest {
			if _, ok := (&Sum{waits: nil}).Of(1); ok {
				t.Errorf("%s: there is a peer", c.name)
			}
			continue
		}
		if p := compare(c.waits, c.served); p.Confidence < c.least || p.Confidence > c.most {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}
