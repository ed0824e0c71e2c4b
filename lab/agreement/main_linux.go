// Command agreement compares what whylate infers with what the kernel's events in the same recording show.
//
//	go run ./lab/agreement -record /tmp/corpus   # as root: four seconds for each case of cases_linux.go
//	go run ./lab/agreement /tmp/corpus           # the table of docs/internals/accuracy.md
//
// Each recording is explained three times: with the kernel's events, with samples of the host alone, and bare. What the events
// show is the truth. The recordings stay outside of the repository.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "service" {
		serve(os.Args[2:])
		return
	}
	record := flag.String("record", "", "record the cases into this directory")
	only := flag.String("only", "", "record only the cases whose names this regular expression matches")
	tool := flag.String("whylate", "whylate", "the program that records")
	isGrouped := flag.Bool("grouped", false, "set by this program when it starts itself")
	flag.Parse()
	var err error
	switch {
	case *record != "" && !*isGrouped:
		err = recordInGroup()
	case *record != "":
		err = recordCases(*record, *only, *tool)
	case flag.NArg() == 1:
		err = compare(os.Stdout, flag.Arg(0))
	default:
		err = fmt.Errorf("name a directory of recordings, or -record DIRECTORY")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agreement:", err)
		os.Exit(1)
	}
}
