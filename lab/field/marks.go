package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	naming "github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// markable are the programs of this repository with requests by net/http, so that they can mark them (run.Marked).
var markable = []string{"accounts", "audit", "catalog", "chi", "dashboard", "echo", "feed", "gin", "orders", "pricing", "queue", "quotes", "relay"}

// A requestLog has the latencies that a program measured, by route.
type requestLog map[string][]loggedRequest

type loggedRequest struct{ end, took int64 }

func readLog(url string) (requestLog, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := requestLog{}
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		var a loggedRequest
		line := in.Text()
		if n, err := fmt.Sscanf(line, "log %d %d", &a.end, &a.took); n != 2 {
			return nil, fmt.Errorf("a line of the program's log is %q: %w", line, err)
		}
		out[strings.Join(strings.Fields(line)[3:], " ")] = append(out[strings.Join(strings.Fields(line)[3:], " ")], a)
	}
	return out, nil
}

// latenciesWithin returns the sorted latencies of requests that started and ended between two times.
func latenciesWithin(list []loggedRequest, from, to int64) (took []int64) {
	for _, a := range list {
		if a.end-a.took >= from && a.end <= to {
			took = append(took, a.took)
		}
	}
	slices.Sort(took)
	return took
}

// runMarks records each program of the corpus that can mark its requests, and prints a table. For each route it has the
// program's own log, and the reports of the same trace with and without marks.
func runMarks(nameFilter string) error {
	match, err := regexp.Compile(nameFilter)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "field-marks")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tmp, whylate, err := prepareDirs(ctx, dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	defer peers.Wait()
	fmt.Println("| program | route | its own log: n, p50, p99, max | by marks | without marks | first cause by marks, and without |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, e := range entries {
		if !slices.Contains(markable, e.program) || !match.MatchString(e.name) {
			continue
		}
		var log requestLog
		e.args = append(slices.Clone(e.args), "-marked")
		e.seconds = max(e.seconds, 2)
		e.afterLoad = func(s *server) (err error) {
			log, err = readLog(s.pprof + "/log")
			return err
		}
		data := filepath.Join(tmp, e.name)
		if _, err := e.record(ctx, whylate, dir, data); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", e.name, err)
			continue
		}
		file := filepath.Join(data, e.name+".whylate") // the uncompressed file
		marked, err := explainRecording(ctx, whylate, file)
		if err != nil {
			return err
		}
		plain, err := explainRecording(ctx, whylate, file, "--no-marks")
		if err != nil {
			return err
		}
		printMarks(e.name, log, marked, plain)
	}
	return ctx.Err()
}

func explainRecording(ctx context.Context, whylate, file string, flags ...string) (*report.Report, error) {
	cmd := exec.CommandContext(ctx, whylate, append([]string{"explain", "--json"}, append(flags, file)...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("explaining: %w", err)
	}
	r := new(report.Report)
	return r, json.Unmarshal(out, r)
}

func printMarks(name string, log requestLog, marked, unmarked *report.Report) {
	routes := make([]string, 0, len(log))
	for r := range log {
		routes = append(routes, r)
	}
	slices.Sort(routes)
	for _, route := range routes {
		from := marked.Input.Start.UnixNano()
		took := latenciesWithin(log[route], from, from+marked.Input.DurationNS)
		if len(took) == 0 {
			continue
		}
		rank := func(q float64) int64 { return took[int(q*float64(len(took)-1))] } // as the report's
		logged := fmt.Sprintf("%d, %s, %s, %s", len(took), words.Duration(rank(0.5)), words.Duration(rank(0.99)), words.Duration(took[len(took)-1]))
		byMarks, byCause := groupAnswer(marked, func(g *report.Group) bool { return g.Kind == report.KindMark && g.Name == route })
		withoutMarks, cause := groupAnswer(unmarked, guessGroup(unmarked, route))
		fmt.Printf("| %s | %s | %s | %s | %s | %s; %s |\n", name, route, logged, byMarks, withoutMarks, byCause, cause)
	}
}

// guessGroup returns the group of a route without marks: the first group of requests whose name contains the route's last
// word, otherwise any group of requests.
func guessGroup(r *report.Report, route string) func(g *report.Group) bool {
	word := strings.Trim(route[strings.LastIndex(route, "/")+1:], "{}")
	for i := range r.Groups {
		if g := &r.Groups[i]; g.Role == report.RoleRequests && word != "" && strings.Contains(strings.ToLower(g.Name), word) {
			return func(h *report.Group) bool { return h == g }
		}
	}
	return func(g *report.Group) bool { return g.Role == report.RoleRequests }
}

func groupAnswer(r *report.Report, matches func(g *report.Group) bool) (numbers, cause string) {
	format := func(p *int64) string {
		if p == nil {
			return "–"
		}
		return words.Duration(*p)
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		if !matches(g) {
			continue
		}
		numbers = fmt.Sprintf("%d, %s, %s, %s", g.Count, format(g.LatencyNS.P50), format(g.LatencyNS.P99), format(g.LatencyNS.Max))
		if g.Kind != report.KindMark {
			numbers += " (" + naming.GroupName(g, 40) + ")"
		}
		cause = "–"
		if all := g.All(); all != nil && len(all.Causes) > 0 {
			c := &all.Causes[0]
			if cause = string(c.Cause); c.Site != nil {
				cause += " " + naming.SiteText(c.Site.OwnLine(), 60)
			}
		}
		return numbers, strings.ReplaceAll(cause, "|", "\\|")
	}
	return "none", "–"
}
