package report_test

import (
	"fmt"
	"log"
	"os"

	"github.com/whylate/whylate/report"
)

// A program reads a report written by "whylate explain --json", and prints its findings.
func ExampleReadJSON() {
	f, err := os.Open("testdata/tso.json")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	r, err := report.ReadJSON(f)
	if err != nil {
		log.Fatal(err)
	}
	for _, finding := range r.Findings {
		fmt.Println(finding.Severity, finding.Code, finding.Title)
	}
	// Output:
	// high WL1001 one goroutine serves everybody and runs late
	// info WL2008 the network is not to blame
}
