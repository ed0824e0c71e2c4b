package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	rows := func(right, wrong, void int) (rows []row) {
		for i := range right + wrong + void {
			r := row{p50: estimate{Low: time.Millisecond, High: 3 * time.Millisecond}, after: figures{p50: 2 * time.Millisecond}}
			if r.service, r.isVoid = "routes", i >= right+wrong; i >= right {
				r.after.p50 = 9 * time.Millisecond
			}
			rows = append(rows, r)
		}
		return rows
	}
	for _, c := range []struct {
		right, wrong, void int
		fails, notProved   bool
	}{
		{27, 0, 0, false, false},
		{20, 7, 0, false, false},
		{12, 15, 0, true, false},
		{2, 1, 24, false, false},
		{0, 0, 27, true, true},
	} {
		var b strings.Builder
		err := judge(&b, rows(c.right, c.wrong, c.void))
		if (err != nil) != c.fails || errors.Is(err, errNotProved) != c.notProved || strings.Count(b.String(), "not proved: ") != c.void {
			t.Errorf("%+v: error %v, printed\n%s", c, err, b.String())
		}
	}
}
