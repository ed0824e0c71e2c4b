package aware

import (
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

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
		check.Equal(t, on("containermaxprocs", c.built, c.env), c.want, "%q, %q", c.built, c.env)
	}
}
