package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// An answer is the result for one pod.
type answer struct {
	Pod       string            `json:"pod"`
	Service   map[string]string `json:"service"`
	Port      int               `json:"port,omitempty"`
	Flight    bool              `json:"flight,omitempty"` // recorded by its flight recorder
	File      string            `json:"file,omitempty"`   // recording in the directory of -o
	Page      string            `json:"page,omitempty"`
	Bytes     int64             `json:"bytes,omitempty"`
	Truncated bool              `json:"truncated,omitempty"`
	Error     string            `json:"error,omitempty"`
	Events    []event           `json:"events,omitempty"`
	Report    json.RawMessage   `json:"report,omitempty"` // report/report.schema.json

	status int
	file   string // recording, including a temporary one
	report *report.Report
}

// exitStatus returns the command's status: that of the last pod that failed, or the interrupt if there was one, because it explains the failures;
// ExitOK if none failed.
func exitStatus(answers []*answer) int {
	status := cli.ExitOK
	for _, a := range answers {
		if status != cli.ExitInterrupted && a.status != cli.ExitOK {
			status = a.status
		}
	}
	return status
}

// writeAnswers writes the reports of all pods with their events, and a summary if there are several; with --json the answers as
// JSON, with --html a page for each. Answers without a report are left out of the text.
func (r *run) writeAnswers(answers []*answer) error {
	var reports []text.NamedReport
	columns := 0
	if f, ok := r.streams.Out.(*os.File); ok {
		columns, _, _ = term.GetSize(int(f.Fd()))
	}
	for i, a := range answers {
		if a.report == nil {
			continue
		}
		var data bytes.Buffer
		if err := report.WriteJSON(&data, a.report); err != nil {
			return err
		}
		a.Report = data.Bytes()
		reports = append(reports, text.NamedReport{Name: a.Pod, Report: a.report})
		show := []string{"report"}
		if r.full {
			show = append(show, "--full")
		}
		if r.html {
			dir := "."
			if r.output != "" {
				dir = r.output
			}
			a.Page = filepath.Join(dir, strings.TrimSuffix(filepath.Base(a.file), record.BundleExt)+".html")
			show = append(show, "--html", a.Page)
		}
		out := r.streams.Out
		if r.json {
			out = io.Discard
		} else if i > 0 {
			fmt.Fprintln(out)
		}
		if r.html || !r.json {
			if status := cli.Run(context.Background(), append(show, "-"), bytes.NewReader(a.Report), out, r.streams.Err); status != cli.ExitOK {
				return fmt.Errorf("pod %s: the answer could not be written", a.Pod)
			}
		}
		if r.json {
			continue
		}
		for _, e := range a.Events {
			fmt.Fprintf(out, "event %s %s: %s", e.Time.Format(time.TimeOnly), e.Reason, e.Message)
			if e.Count > 1 {
				fmt.Fprintf(out, " (%d times)", e.Count)
			}
			fmt.Fprintln(out)
		}
		for _, output := range [][2]string{{"recording", a.File}, {"page", a.Page}} {
			if output[1] != "" {
				fmt.Fprintf(out, "%s: %s\n", output[0], termtext.Escape(output[1]))
			}
		}
	}
	if r.json {
		e := json.NewEncoder(r.streams.Out)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"pods": answers})
	}
	if len(reports) > 1 {
		fmt.Fprintln(r.streams.Out)
		return text.WriteSummary(r.streams.Out, reports, text.Options{Width: columns})
	}
	return nil
}
