package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	rtrace "runtime/trace"
	"strings"
	"time"

	"golang.org/x/exp/trace"
)

// stages are the parts of explain. Each has the functions whose callees belong to it: a sample counts for the innermost
// function of its stack that is listed here. Names are relative to the repository's internal directory, or import paths.
var stages = []struct {
	name      string
	functions []string
}{
	{"read", []string{"trace/tracefmt.(*Reader)"}},
	{"decode", []string{"trace/timeline.(*Decoder)", "trace/timeline.(*worker)", "trace/tracefmt.(*Tables)"}},
	{"find", []string{"explain/request.(*Finder)", "explain/request.(*loopSource)", "explain/request.(*jobSource)", "explain/request.(*messageSource)",
		"explain/request.(*identityFinder)", "explain/request.(*callSource)", "explain/request.runParallel"}},
	{"name", []string{"explain/path.(*Stage).FindQuickGroup"}},
	{"choose", []string{"explain/pass.(*plan)", "explain/pass.(*Pass).walkOrder"}},
	{"walk", []string{"explain/path.(*Stage).Walk"}},
	{"classify", []string{"explain/cause."}},
	{"concurrent", []string{"explain/path.(*Stage).EachConcurrentRun"}},
	{"sum", []string{"explain/groups.", "explain/queues.", "explain/detailed.", "explain/moments.", "explain/peers.", "explain/answers."}},
	{"process", []string{"explain/process.", "explain/freeze."}},
	{"predict", []string{"explain/predict."}},
	{"write", []string{finishFunc, module + "report."}},
	{"collect", []string{"runtime.gcBgMarkWorker", "runtime.bgsweep"}},
	{"rest", nil},
}

const (
	module = "github.com/whylate/whylate/"
	// finishFunc makes the report: its first sample ends the reading of the trace.
	finishFunc = "explain.(*reading).finish"
	// decoderFunc runs in a goroutine of each reading.
	decoderFunc = "trace/timeline.NewDecoder.func1"
)

// A budget has the time of one run of the command, by stage.
type budget struct {
	CPU, Wall     []float64 // by stage, in seconds; next to other processes samples are lost, and only the proportions are right
	SecondReading float64   // seconds of CPU in a second reading, if there was one
	All           float64   // seconds of wall time
	Busy          float64   // part of the cores' time
	BusyReading   float64   // the same until finishFunc
	Collection    uint32
}

const (
	samplesHz = 250
	binNS     = 1e9 / samplesHz
)

// recordStages runs the command and records an execution trace of it, with CPU samples.
func recordStages(files []string, out io.Writer) error {
	var buf bytes.Buffer
	runtime.SetCPUProfileRate(samplesHz)
	if err := pprof.StartCPUProfile(io.Discard); err != nil { // keeps the rate, and warns about it on standard error
		return fmt.Errorf("profiling: %w", err)
	}
	if err := rtrace.Start(&buf); err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	begin := time.Now()
	_, err := runExplain(files)
	took := time.Since(begin)
	rtrace.Stop()
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	b, err := readBudget(&buf)
	if err != nil {
		return err
	}
	b.All = took.Seconds()
	return json.NewEncoder(out).Encode(b)
}

type stageSample struct {
	time  trace.Time
	stage int
}

func readBudget(in io.Reader) (*budget, error) {
	rd, err := trace.NewReader(in)
	if err != nil {
		return nil, err
	}
	var (
		samples                  []stageSample
		readings                 []trace.Time
		first, last, reportStart trace.Time
		running                  = map[trace.GoID]trace.Time{}
		runs                     [][2]trace.Time
	)
	for {
		ev, err := rd.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the command's own trace: %w", err)
		}
		first, last = cmp.Or(first, ev.Time()), ev.Time()
		switch ev.Kind() {
		case trace.EventStackSample:
			stage, finishing := stageOf(ev.Stack())
			if finishing && reportStart == 0 {
				reportStart = ev.Time()
			}
			samples = append(samples, stageSample{ev.Time(), stage})
		case trace.EventStateTransition:
			st := ev.StateTransition()
			if st.Resource.Kind != trace.ResourceGoroutine {
				continue
			}
			id := st.Resource.Goroutine()
			from, to := st.Goroutine()
			if from == trace.GoNotExist && leafFunction(st.Stack) == module+"internal/"+decoderFunc {
				readings = append(readings, ev.Time())
			}
			if start, ok := running[id]; ok && !to.Executing() {
				runs = append(runs, [2]trace.Time{start, ev.Time()})
				delete(running, id)
			} else if !ok && to.Executing() {
				running[id] = ev.Time()
			}
		}
	}
	reportStart = cmp.Or(reportStart, last)
	b := &budget{CPU: make([]float64, len(stages)), Wall: make([]float64, len(stages))}
	countedBins := map[[2]int64]bool{}
	for _, s := range samples {
		b.CPU[s.stage] += 1.0 / samplesHz
		if bin := [2]int64{int64(s.time-first) / binNS, int64(s.stage)}; !countedBins[bin] {
			countedBins[bin] = true
			b.Wall[s.stage] += 1.0 / samplesHz
		}
		if len(readings) > 1 && s.time >= readings[1] && s.time < reportStart {
			b.SecondReading += 1.0 / samplesHz
		}
	}
	cores := float64(runtime.GOMAXPROCS(0))
	for _, r := range runs {
		b.Busy += float64(r[1]-r[0]) / float64(last-first) / cores
		if r[0] < reportStart {
			b.BusyReading += float64(min(r[1], reportStart)-r[0]) / float64(reportStart-first) / cores
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.Collection = m.NumGC
	return b, nil
}

func leafFunction(s trace.Stack) (fn string) {
	for f := range s.Frames() {
		return f.Func
	}
	return ""
}

// stageOf returns the index of a stack's stage, and whether it is in finishFunc.
func stageOf(s trace.Stack) (stage int, finishing bool) {
	stage = len(stages) - 1
	found := false
	for f := range s.Frames() {
		fn := strings.TrimPrefix(f.Func, module+"internal/")
		for i := range stages {
			for _, p := range stages[i].functions {
				if !strings.HasPrefix(fn, p) {
					continue
				}
				if p == finishFunc {
					return i, true
				}
				if !found {
					stage, found = i, true
				}
			}
		}
	}
	return stage, false
}

// printBudgets prints the CPU and wall time of each file by stage, of the fastest of several runs; with -together also those of one report
// about all files.
func printBudgets(c config, out, progress io.Writer, files []string) error {
	fmt.Fprintf(out, "%-24s %6s %5s %7s", "CPU/wall, ms", "wall", "busy", "reading")
	for _, s := range stages {
		fmt.Fprintf(out, " %10s", s.name)
	}
	fmt.Fprintf(out, " %8s\n", "2nd read")
	reports := [][]string{}
	for _, file := range files {
		reports = append(reports, []string{file})
	}
	if c.together {
		reports = append(reports, files)
	}
	for _, inputs := range reports {
		var best *budget
		for range c.runs {
			b, err := runInChild[budget]("stages", inputs...)
			if err != nil {
				return err
			}
			if best == nil || b.All < best.All {
				best = &b
			}
		}
		fmt.Fprintf(out, "%-24s %6.0f %5.2f %7.2f", namesOf(inputs), best.All*1e3, best.Busy, best.BusyReading)
		for i := range stages {
			fmt.Fprintf(out, " %10s", fmt.Sprintf("%.0f/%.0f", best.CPU[i]*1e3, best.Wall[i]*1e3))
		}
		fmt.Fprintf(out, " %8.0f\n", best.SecondReading*1e3)
	}
	return nil
}
