package origin

import (
	"net/http"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

func TestOther(t *testing.T) {
	for _, c := range []struct {
		site, origin string
		want         bool
	}{
		{"", "", false}, {"same-origin", "", false}, {"none", "", false}, {"same-site", "", true}, {"cross-site", "", true}, {"cross-site", "http://here:80", true},
		{"", "http://here:80", false}, {"", "https://here:80", false}, {"", "http://here", true}, {"", "http://elsewhere:80", true}, {"", "null", true}, {"", "http://%zz", true},
		{"same-origin", "http://elsewhere", false},
	} {
		r := &http.Request{Host: "here:80", Header: http.Header{}}
		r.Header.Set("Sec-Fetch-Site", c.site)
		r.Header.Set("Origin", c.origin)
		check.Equal(t, IsCrossSite(r), c.want, "Sec-Fetch-Site %q, Origin %q", c.site, c.origin)
	}
}
