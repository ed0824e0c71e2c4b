package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// errNotProved is the result of a run on a machine that was never quiet. Its exit status is 3.
var errNotProved = errors.New("not one row was measured on a quiet machine")

// publishedRate has how many medians were measured within low and high by docs/internals/measurements.md.
var publishedRate = struct{ inside, rows int }{23, 27}

// judge compares the rate of right predictions with the published one, and writes the rows that prove nothing.
func judge(w io.Writer, rows []row) error {
	quiet, inside := 0, 0
	for i := range rows {
		r := &rows[i]
		switch {
		case r.isVoid:
			fmt.Fprintf(w, "not proved: the prediction of %s: timers were %v late, threads waited %.0f%% of the time for a processor\n", r.service, r.noise.timerDelay.Round(100*time.Microsecond), 100*r.noise.runQueueShare)
		case r.p50.Low <= r.after.p50 && r.after.p50 <= r.p50.High:
			inside++
			quiet++
		default:
			quiet++
		}
	}
	if quiet == 0 && len(rows) > 0 {
		return errNotProved
	}
	if p := chanceOfSoFew(inside, quiet, float64(publishedRate.inside+1)/float64(publishedRate.rows+2)); p < 0.01 {
		return fmt.Errorf("%d of %d medians were measured within low and high, where %d of %d are published: a chance of %.1g", inside, quiet, publishedRate.inside, publishedRate.rows, p)
	}
	return nil
}

// chanceOfSoFew returns the binomial probability of at most k successes in n trials.
func chanceOfSoFew(k, n int, p float64) (sum float64) {
	term := math.Pow(1-p, float64(n))
	for i := range k + 1 {
		sum += term
		term *= float64(n-i) / float64(i+1) * p / (1 - p)
	}
	return sum
}
