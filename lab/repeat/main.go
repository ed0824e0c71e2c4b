// Command repeat reports whether recordings of the same service, made seconds apart, get the same answer: the first finding
// above info, its site and its severity.
//
//	go run ./lab/repeat -n 6 -d 3s http://localhost:6060  records a running service six times
//	go run ./lab/repeat FILE...                           explains both halves of each recording
//
// Halves end where generations end. A recording with one generation is left out. The exit status is 1 if fewer than n-1 of n
// recordings of a service, or the halves of any recording, agree.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/whylate/whylate/report"
)

func main() {
	log.SetFlags(0)
	exe := flag.String("whylate", "whylate", "`path` of the program")
	count := flag.Int("n", 6, "how often a service is recorded")
	length := flag.Duration("d", 3*time.Second, "length of each recording of a service")
	flag.Parse()
	tmp, err := os.MkdirTemp("", "repeat")
	if err != nil {
		log.Fatal(err)
	}
	isStable := true
	for _, target := range flag.Args() {
		var answers []string
		minEqual := *count - 1
		if strings.Contains(target, "://") {
			answers, err = recordRepeatedly(*exe, tmp, target, *count, *length)
		} else {
			minEqual = 2
			answers, err = explainHalves(*exe, tmp, target)
		}
		if err != nil {
			log.Printf("%s: %v", target, err)
			isStable = false
			continue
		}
		if n := largestAgreement(answers); len(answers) > 0 && n < minEqual {
			isStable = false
			fmt.Printf("%s: %d of %d agree\n  %s\n", target, n, len(answers), strings.Join(answers, "\n  "))
		}
	}
	os.RemoveAll(tmp)
	if !isStable {
		os.Exit(1)
	}
}

// recordRepeatedly returns the answers of n recordings of a service.
func recordRepeatedly(exe, tmp, url string, n int, length time.Duration) (answers []string, err error) {
	for range n {
		file := filepath.Join(tmp, "recording.whylate")
		if out, err := exec.Command(exe, "record", "-d", length.String(), "-o", file, url).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("record: %v: %s", err, out)
		}
		r, err := explain(exe, file)
		if err != nil {
			return nil, err
		}
		answers = append(answers, answerOf(r))
		os.Remove(file)
	}
	return answers, nil
}

// explainHalves returns the answers of both halves of a recording; none if it cannot be divided.
func explainHalves(exe, tmp, file string) (answers []string, err error) {
	whole, err := explain(exe, file)
	if err != nil {
		return nil, err
	}
	all := time.Duration(whole.Input.DurationNS)
	// A half ends shortly before the middle: the whole generation that begins there belongs to the other half.
	for _, half := range [][2]time.Duration{{0, all * 49 / 100}, {all * 51 / 100, all}} {
		part := filepath.Join(tmp, "half"+filepath.Ext(file))
		out, err := exec.Command(exe, "cut", "--from", half[0].String(), "--to", half[1].String(), file, part).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("cut: %v: %s", err, out)
		}
		r, err := explain(exe, part)
		if os.Remove(part); err != nil {
			return nil, err
		}
		if r.Input.DurationNS > int64(all)*4/5 {
			return nil, nil
		}
		answers = append(answers, answerOf(r))
	}
	return answers, nil
}

// explain returns the report of a recording.
func explain(exe, file string) (*report.Report, error) {
	out, err := exec.Command(exe, "explain", "--json", file).Output()
	if err != nil {
		return nil, fmt.Errorf("explain: %v", err)
	}
	r := new(report.Report)
	return r, json.Unmarshal(out, r)
}

// answerOf returns the first finding above info in one line.
func answerOf(r *report.Report) string {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Severity != report.SeverityInfo {
			site := ""
			if f.Site != nil {
				site = fmt.Sprintf(" at %s:%d", f.Site.Func, f.Site.Line)
			}
			return fmt.Sprintf("%s %s%s", f.Severity, f.Code, site)
		}
	}
	return "nothing"
}

// largestAgreement returns how many answers the most frequent one has.
func largestAgreement(answers []string) (most int) {
	counts := map[string]int{}
	for _, a := range answers {
		counts[a]++
		most = max(most, counts[a])
	}
	return most
}
