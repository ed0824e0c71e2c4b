package aware

import "testing"

func TestOn(t *testing.T) {
	for _, c := range []struct {
		built, env string
		want       bool
	}{
		{"", "", true},
		{"containermaxprocs=0,updatemaxprocs=0", "", false},
		{"containermaxprocs=0", "containermaxprocs=1", true},
		{"", "gctrace=1,containermaxprocs=0", false},
		{"asynctimerchan=1", "", true},
	} {
		if got := on("containermaxprocs", c.built, c.env); got != c.want {
			t.Errorf("%q, %q: %v", c.built, c.env, got)
		}
	}
}
