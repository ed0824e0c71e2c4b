// Generators holds "whylate load" against wrk, an independent load generator (Debian's package wrk), on the same service.
//
// wrk is a closed loop: each of its connections sends when it has its answer. So the first comparison is with a closed loop
// of as many clients here, turn about; the percentiles must agree within what each differs from run to run. The second is
// of an open loop at the rate that wrk reached, to show what a closed loop leaves out: nothing, as long as the service does
// not stall. With -stall the service stops for a second in every five, and the two part.
//
//	go run ./lab/sweep/generators
//	go run ./lab/sweep/generators -stall
package main

import (
	"encoding/json"
	"errors"
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
		if since := time.Since(begin) % (5 * time.Second); stalls && since > 4*time.Second {
			time.Sleep(5*time.Second - since)
		}
		time.Sleep(time.Millisecond)
		_, _ = io.WriteString(w, "ok")
	})))
}

// seen is what a generator reported, in ms and requests a second.
type seen struct{ p50, p90, p99, rate float64 }

func compare(runs int, d time.Duration, conns int, stalls bool) error {
	if _, err := exec.LookPath("wrk"); err != nil {
		return errors.New("wrk is missing; install it (Debian: apt-get install wrk)")
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
	names := []string{"wrk", "whylate load --closed", "whylate load --rate"}
	all := map[string][]seen{}
	for range runs {
		w, err := wrk(url, d, conns)
		if err != nil {
			return err
		}
		c, err := ours(tool, url, d, "--closed", strconv.Itoa(conns))
		if err != nil {
			return err
		}
		o, err := ours(tool, url, d, "--rate", fmt.Sprintf("%.0f", w.rate))
		if err != nil {
			return err
		}
		for i, s := range []seen{w, c, o} {
			all[names[i]] = append(all[names[i]], s)
		}
	}
	fmt.Printf("%d runs of %v each in turn, %d connections; mean and standard deviation over runs\n\n", runs, d, conns)
	fmt.Printf("%-24s %16s %16s %18s %16s\n", "", "p50 ms", "p90 ms", "p99 ms", "requests/s")
	for _, n := range names {
		fmt.Printf("%-24s", n)
		for i, f := range []func(seen) float64{func(s seen) float64 { return s.p50 }, func(s seen) float64 { return s.p90 }, func(s seen) float64 { return s.p99 }, func(s seen) float64 { return s.rate }} {
			m, sd := moments(all[n], f)
			fmt.Printf(" %*.4g ± %-5.2g", []int{8, 8, 10, 8}[i], m, sd)
		}
		fmt.Println()
	}
	return nil
}

func moments(all []seen, f func(seen) float64) (mean, sd float64) {
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

func wrk(url string, d time.Duration, conns int) (s seen, err error) {
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

func ours(tool, url string, d time.Duration, how ...string) (s seen, err error) {
	out, err := exec.Command(tool, append([]string{"load", "--json", "-d", d.String(), url}, how...)...).Output()
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
	return seen{r.Intended.P50 / 1e6, r.Intended.P90 / 1e6, r.Intended.P99 / 1e6, r.Rate}, nil
}
