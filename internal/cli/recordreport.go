package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// recording is one element of the JSON output.
type recording struct {
	URL           string           `json:"url"`
	Service       string           `json:"service,omitempty"` // of several in one file
	File          string           `json:"file,omitempty"`
	Start         *time.Time       `json:"start,omitempty"`
	AskedNS       int64            `json:"asked_ns,omitempty"`
	WindowNS      int64            `json:"window_ns,omitempty"`
	GotNS         int64            `json:"got_ns,omitempty"`
	Bytes         int64            `json:"bytes"`
	TraceVersion  string           `json:"trace_version,omitempty"`
	Truncated     bool             `json:"truncated"`
	CPUProfile    bool             `json:"cpu_profile"`
	AllocsProfile bool             `json:"allocs_profile"`
	Warnings      []bundle.Warning `json:"warnings"`
	Error         *recordingError  `json:"error,omitempty"`
	Report        json.RawMessage  `json:"report,omitempty"` // of --explain: report/report.schema.json
}

type recordingError struct {
	Kind record.Kind `json:"kind"`
	Text string      `json:"text"`
}

// report writes the results of the jobs, of which outcomes and answers have one each, and returns the error that ends the run: that of an interrupt
// before any other.
func (r *recorder) report(cmd *cobra.Command, jobs []record.Job, outcomes []record.Outcome, answers []answer) error {
	status := ExitOK
	raise := func(to int) {
		// An interrupt explains all the others.
		if status != ExitInterrupted && to != ExitOK {
			status = to
		}
	}
	list := make([]recording, len(jobs))
	out := r.s.Out
	if r.output == "-" {
		out = r.s.Err
	}
	for i, o := range outcomes {
		list[i] = recording{Warnings: []bundle.Warning{}}
		name := jobs[i].Name
		if r.services != nil {
			list[i].Service = r.services[i]
			name += "#" + r.services[i]
		}
		if jobs[i].Target != "" {
			end, _, _ := record.ParseEndpoint(jobs[i].Target)
			list[i].URL = end.String()
		}
		if o.Err != nil {
			e := &recordingError{Text: o.Err.Error()}
			if re, ok := errors.AsType[*record.Error](o.Err); ok {
				e.Kind = re.Kind
			}
			list[i].Error = e
			if o.Result == nil || !o.HasGeneration || e.Kind == record.Interrupted {
				raise(command.RecordStatus(o.Err))
			}
		}
		if o.Result == nil {
			fmt.Fprintf(r.s.Err, "whylate: %s\n", command.OneLine(o.Err.Error()))
			continue
		}
		res := o.Result
		start := res.Start.Round(0).UTC()
		list[i] = recording{URL: res.URL, Service: list[i].Service, File: jobs[i].Name, Start: &start, AskedNS: int64(res.Requested), WindowNS: int64(res.Window),
			GotNS: int64(res.Received), Bytes: res.Bytes, TraceVersion: res.TraceVersion, Truncated: res.Partial, CPUProfile: res.CPUProfile,
			AllocsProfile: res.AllocsProfile, Warnings: append([]bundle.Warning{}, res.Warnings...), Error: list[i].Error}
		for _, w := range res.Warnings {
			fmt.Fprintf(r.s.Err, "whylate: warning: %s\n", command.OneLine(res.Host+": "+w.Text))
		}
		if !res.HasGeneration {
			fmt.Fprintf(r.s.Err, "whylate: %s\n", command.OneLine(res.Host+": what arrived cannot be analysed: it has no complete second of the trace"))
		}
		if a := &answers[i]; a.Report != nil {
			warn(a.Report, res.Warnings)
		} else if a.err != nil && res.HasGeneration {
			raise(ExitFailed)
			fmt.Fprintf(r.s.Err, "whylate: %s\n", command.OneLine(a.err.Error()))
		}
		if !r.json {
			if _, err := fmt.Fprintln(out, command.OneLine(summary(res, name))); err != nil {
				return fmt.Errorf("writing the result: %w", err)
			}
		}
	}
	if err := r.writeReports(cmd, jobs, outcomes, answers, list); err != nil {
		return err
	}
	if r.json {
		if err := command.WriteJSON(r.s.Out, map[string]any{"recordings": list}); err != nil {
			return err
		}
	}
	if status != ExitOK {
		return command.Exit(status, nil) // everything has been said
	}
	return nil
}

// writeReports puts each report into the element of list with the same index if the output is JSON; else it prints the reports,
// and a summary of all if there are several. jobs, outcomes and answers have an element for each recording, too; an answer
// without a report is left out.
func (r *recorder) writeReports(cmd *cobra.Command, jobs []record.Job, outcomes []record.Outcome, answers []answer, list []recording) error {
	var named []text.NamedReport
	for i, a := range answers {
		if a.Report == nil {
			continue
		}
		if r.json {
			var b bytes.Buffer
			if err := report.WriteJSON(&b, a.Report); err != nil {
				return err
			}
			list[i].Report = b.Bytes()
			continue
		}
		fmt.Fprintln(r.s.Out)
		e := explainFlags{color: r.color}
		if err := e.write(cmd.Context(), r.s, e.reportCommand(cmd, jobs[i].Name), a.Report); err != nil {
			return err
		}
		if res := outcomes[i].Result; res != nil {
			named = append(named, text.NamedReport{Name: res.Host, Report: a.Report})
		}
	}
	if len(named) < 2 {
		return nil
	}
	fmt.Fprintln(r.s.Out)
	return text.WriteSummary(r.s.Out, named, text.Options{Width: width(r.s.Out), Color: r.color.on(r.s.Out, os.Getenv)})
}

// summary describes a recording, written to the file name ("" for none), in a line.
func summary(r *record.Result, name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s of trace in %.1fs", r.Host, words.Bytes(r.Bytes), r.Received.Seconds())
	var with []string
	if r.CPUProfile {
		with = append(with, "CPU profile")
	}
	if r.AllocsProfile {
		with = append(with, "allocation profile")
	}
	if r.HostSamples > 0 {
		with = append(with, "host samples")
	}
	if r.Kernel != nil {
		with = append(with, fmt.Sprintf("%d kernel events", r.Kernel.Events))
	}
	if len(with) > 0 {
		b.WriteString(", with " + strings.Join(with, " and "))
	}
	if r.Partial {
		b.WriteString(", cut short")
	}
	if name != "" {
		b.WriteString(": " + name)
	}
	return b.String()
}
