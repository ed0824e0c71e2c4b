package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// printTogether prints what it costs to explain traces of the same seconds in one report: the command's time and CPU time by the sum of
// those of each trace alone. They take turns, and the median of the turns counts.
func printTogether(c config, out, progress io.Writer, files []string) error {
	var times, cpuTimes []float64
	var alone, together result
	for turn := range c.runs {
		fmt.Fprintf(progress, "turn %d of %d\n", turn+1, c.runs)
		var sum result
		for _, file := range files {
			r, err := measure("command", file)
			if err != nil {
				return err
			}
			sum.Time, sum.CPU, sum.PeakKB = sum.Time+r.Time, sum.CPU+r.CPU, max(sum.PeakKB, r.PeakKB)
		}
		all, err := measure("command", files...)
		if err != nil {
			return err
		}
		times, cpuTimes = append(times, all.Time.Seconds()/sum.Time.Seconds()), append(cpuTimes, all.CPU.Seconds()/sum.CPU.Seconds())
		if turn == 0 || all.Time < together.Time {
			alone, together = sum, all
		}
	}
	slices.Sort(times)
	slices.Sort(cpuTimes)
	fmt.Fprintf(out, "%s in one report, by each alone: %.2f times the time (%.2f to %.2f), %.2f times the CPU time (%.2f to %.2f); median of %d turns, fastest %s by %s, %s by %s MB\n",
		namesOf(files), times[len(times)/2], times[0], times[len(times)-1], cpuTimes[len(cpuTimes)/2], cpuTimes[0], cpuTimes[len(cpuTimes)-1], c.runs,
		together.Time.Round(time.Millisecond), alone.Time.Round(time.Millisecond), megabytes(together.PeakKB), megabytes(alone.PeakKB))
	return nil
}

func namesOf(files []string) string {
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = strings.TrimSuffix(filepath.Base(file), ".trace")
	}
	return strings.Join(names, " + ")
}
