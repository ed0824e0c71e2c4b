// Command generators compares "whylate load" with two independent load generators, wrk and hey (Debian's packages), on the same
// service, in turn. Percentiles with the same meaning must agree within the variation of each from run to run:
//
//   - hey and a closed loop of as many clients measure from the time at which a request was sent.
//   - wrk is a closed loop, too, but adds samples for requests that it considers missing (its correction of coordinated
//     omission, github.com/wg/wrk/issues/485), so its percentiles above the median are higher.
//   - hey -q and --rate send at the same rate; the latter measures from the time at which a request was due.
//
// With -stall the service stops for a second in every five, and the results differ: a closed loop sends nothing during a stop.
//
//	go run ./lab/sweep/generators
//	go run ./lab/sweep/generators -stall
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	runs := flag.Int("runs", 5, "runs of each generator")
	d := flag.Duration("d", 4*time.Second, "length of a run, whole seconds")
	conns := flag.Int("c", 4, "connections")
	stalls := flag.Bool("stall", false, "let the service stall for a second in every five")
	serving := flag.Bool("serve", false, "be the service")
	flag.Parse()
	if *serving {
		serve(*stalls)
		return
	}
	if err := compare(*runs, *d, *conns, *stalls); err != nil {
		log.Fatal("generators: ", err)
	}
}

// serve answers in a millisecond, by sleeping: the machine's CPUs are the generators'.
func serve(stalls bool) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("http://" + l.Addr().String() + "/")
	begin := time.Now()
	go func() { // it ends with its parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log.Fatal(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if phase := time.Since(begin) % (5 * time.Second); stalls && phase > 4*time.Second {
			time.Sleep(5*time.Second - phase)
		}
		time.Sleep(time.Millisecond)
		_, _ = io.WriteString(w, "ok")
	})))
}

// clientStats is what a generator reported, in ms and requests a second.
type clientStats struct{ p50, p90, p99, rate float64 }

func compare(runs int, d time.Duration, conns int, stalls bool) error {
	for _, tool := range []string{"wrk", "hey"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; install it (Debian: apt-get install %s)", tool, tool)
		}
	}
	dir, err := os.MkdirTemp("", "generators")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tool := filepath.Join(dir, "whylate")
	if out, err := exec.Command("go", "build", "-o", tool, "github.com/whylate/whylate/cmd/whylate").CombinedOutput(); err != nil {
		return fmt.Errorf("building whylate: %w\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	service := exec.Command(self, "-serve", "-stall="+strconv.FormatBool(stalls))
	service.Stderr = os.Stderr
	if _, err := service.StdinPipe(); err != nil {
		return err
	}
	out, err := service.StdoutPipe()
	if err != nil {
		return err
	}
	if err := service.Start(); err != nil {
		return err
	}
	defer func() { _ = service.Process.Kill(); _ = service.Wait() }()
	var url string
	if _, err := fmt.Fscanln(out, &url); err != nil {
		return fmt.Errorf("the service did not start: %w", err)
	}
	clients, stats := strconv.Itoa(conns), 50
	rate := strconv.Itoa(stats * conns)
	generators := []struct {
		name string
		run  func() (clientStats, error)
	}{
		{"wrk", func() (clientStats, error) { return wrk(url, d, conns) }},
		{"hey", func() (clientStats, error) { return hey(url, d, "-c", clients) }},
		{"whylate load --closed " + clients, func() (clientStats, error) { return whylateLoad(tool, url, d, "--closed", clients) }},
		{"hey at " + rate + "/s", func() (clientStats, error) { return hey(url, d, "-c", clients, "-q", strconv.Itoa(stats)) }},
		{"whylate load --rate " + rate, func() (clientStats, error) {
			return whylateLoad(tool, url, d, "--rate", rate, "--arrivals", "constant")
		}},
	}
	all := map[string][]clientStats{}
	for range runs {
		for _, g := range generators {
			s, err := g.run()
			if err != nil {
				return err
			}
			all[g.name] = append(all[g.name], s)
		}
	}
	fmt.Printf("%d runs of %v each in turn, %d connections; mean and standard deviation over runs\n\n", runs, d, conns)
	fmt.Printf("%-24s %16s %16s %18s %16s\n", "", "p50 ms", "p90 ms", "p99 ms", "requests/s")
	for _, g := range generators {
		n := g.name
		fmt.Printf("%-24s", n)
		for i, f := range []func(clientStats) float64{func(s clientStats) float64 { return s.p50 }, func(s clientStats) float64 { return s.p90 }, func(s clientStats) float64 { return s.p99 }, func(s clientStats) float64 { return s.rate }} {
			m, sd := moments(all[n], f)
			fmt.Printf(" %*.4g ± %-5.2g", []int{8, 8, 10, 8}[i], m, sd)
		}
		fmt.Println()
	}
	return nil
}

func moments(all []clientStats, f func(clientStats) float64) (mean, sd float64) {
	for _, s := range all {
		mean += f(s) / float64(len(all))
	}
	for _, s := range all {
		sd += (f(s) - mean) * (f(s) - mean)
	}
	return mean, math.Sqrt(sd / math.Max(1, float64(len(all)-1)))
}

var (
	percentile = regexp.MustCompile(`(?m)^\s+(50|90|99)%\s+([0-9.]+)(us|ms|s)`)
	perSecond  = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
)

func wrk(url string, d time.Duration, conns int) (s clientStats, err error) {
	out, err := exec.Command("wrk", "-t1", "-c"+strconv.Itoa(conns), "-d"+strconv.Itoa(int(d.Seconds()))+"s", "--latency", url).Output()
	if err != nil {
		return s, fmt.Errorf("wrk: %w", err)
	}
	for _, m := range percentile.FindAllStringSubmatch(string(out), -1) {
		v, err := time.ParseDuration(m[2] + m[3])
		if err != nil {
			return s, err
		}
		*map[string]*float64{"50": &s.p50, "90": &s.p90, "99": &s.p99}[m[1]] = v.Seconds() * 1e3
	}
	m := perSecond.FindStringSubmatch(string(out))
	if m == nil {
		return s, fmt.Errorf("wrk printed no rate: %s", strings.TrimSpace(string(out)))
	}
	s.rate, err = strconv.ParseFloat(m[1], 64)
	return s, err
}

var (
	heyPercentile = regexp.MustCompile(`(?m)^\s+(50|90|99)%+ in ([0-9.]+) secs`)
	heyRate       = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
)

func hey(url string, d time.Duration, flags ...string) (s clientStats, err error) {
	out, err := exec.Command("hey", append(append([]string{"-z", d.String()}, flags...), url)...).Output()
	if err != nil {
		return s, fmt.Errorf("hey: %w", err)
	}
	for _, m := range heyPercentile.FindAllStringSubmatch(string(out), -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return s, err
		}
		*map[string]*float64{"50": &s.p50, "90": &s.p90, "99": &s.p99}[m[1]] = v * 1e3
	}
	m := heyRate.FindStringSubmatch(string(out))
	if m == nil || s.p99 == 0 {
		return s, fmt.Errorf("hey printed no rate or no percentiles: %s", strings.TrimSpace(string(out)))
	}
	s.rate, err = strconv.ParseFloat(m[1], 64)
	return s, err
}

func whylateLoad(tool, url string, d time.Duration, flags ...string) (s clientStats, err error) {
	out, err := exec.Command(tool, append([]string{"load", "--json", "-d", d.String(), url}, flags...)...).Output()
	if err != nil {
		return s, fmt.Errorf("whylate load: %w", err)
	}
	var r struct {
		Intended struct {
			P50 float64 `json:"p50_ns"`
			P90 float64 `json:"p90_ns"`
			P99 float64 `json:"p99_ns"`
		}
		Rate float64 `json:"achieved_per_s"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return s, err
	}
	return clientStats{r.Intended.P50 / 1e6, r.Intended.P90 / 1e6, r.Intended.P99 / 1e6, r.Rate}, nil
}
