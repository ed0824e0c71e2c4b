package text_test

import (
	"log"
	"os"

	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// A report in one line, for a chat.
func ExampleLine() {
	f, err := os.Open("../testdata/tso.json")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	r, err := report.ReadJSON(f)
	if err != nil {
		log.Fatal(err)
	}
	os.Stdout.WriteString(text.Line(r) + "\n")
	// Output:
	// http://tso:60…ebug/pprof/trace?seconds=5. WL1001 (high): one goroutine serves everybody and runs late
}
