package main

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

func TestSummarize(t *testing.T) {
	const stream = `{"Action":"start","Package":"github.com/whylate/whylate/a"}
{"Action":"output","Package":"github.com/whylate/whylate/a","Test":"TestRight","Output":"=== RUN   TestRight\n"}
{"Action":"output","Package":"github.com/whylate/whylate/a","Test":"TestRight","Output":"    a_test.go:3: of no use\n"}
{"Action":"pass","Package":"github.com/whylate/whylate/a","Test":"TestRight","Elapsed":31.4}
{"Action":"output","Package":"github.com/whylate/whylate/a","Test":"TestSkipped","Output":"    a_test.go:4: started\n"}
{"Action":"output","Package":"github.com/whylate/whylate/a","Test":"TestSkipped","Output":"    a_test.go:5: only root can mount\n"}
{"Action":"skip","Package":"github.com/whylate/whylate/a","Test":"TestSkipped"}
{"Action":"output","Package":"github.com/whylate/whylate/a","Output":"PASS\n"}
{"Action":"output","Package":"github.com/whylate/whylate/a","Output":"ok  \twhylate/a\t31.5s\n"}
{"Action":"pass","Package":"github.com/whylate/whylate/a","Elapsed":31.5}
`
	for name, c := range map[string]struct {
		stream, want string
		failed       bool
	}{
		"well": {stream, "      whylate/a.TestRight takes 31 s\nnot proved: whylate/a.TestSkipped: only root can mount\nok  \twhylate/a\t31.5s\n", false},
		"failed": {`{"Action":"output","Package":"b","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"b","Test":"TestX","Output":"    b_test.go:7: 3, want 4\n"}
{"Action":"fail","Package":"b","Test":"TestX"}
{"Action":"fail","Package":"b"}
`, "    b_test.go:7: 3, want 4\n", true},
		"stopped": {`{"Action":"output","Package":"c","Test":"TestX","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"c"}
`, "panic: test timed out\n", true},
		"not built": {`{"ImportPath":"d","Action":"build-output","Output":"d.go:1: syntax error\n"}
{"Action":"fail","Package":"d","FailedBuild":"d"}
`, "d.go:1: syntax error\n", true},
	} {
		var b strings.Builder
		out := summary{w: &b, output: map[testName]string{}}
		if err := out.read(strings.NewReader(c.stream)); err != nil || out.hasFailed != c.failed || b.String() != c.want {
			t.Errorf("%s: failed %v, error %v, printed\n%s\nwant\n%s", name, out.hasFailed, err, b.String(), c.want)
		}
	}
	verbose := summary{w: new(strings.Builder), output: map[testName]string{}, isVerbose: true}
	if err := verbose.read(strings.NewReader(stream)); err != nil || !strings.Contains(verbose.w.(*strings.Builder).String(), "of no use") {
		t.Errorf("error %v, printed\n%s", err, verbose.w)
	}
	check.True(t, verbose.read(strings.NewReader("go: no such module\n")) != nil, "what is not JSON is taken")
}
