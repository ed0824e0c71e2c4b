package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/cli/screen"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/difftext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report/text"
)

// showScreen shows everything on the whole terminal, until the user quits.
func (v *watchFlags) showScreen(ctx context.Context, s *streams, in, out *os.File, list []*watchedService, events <-chan event) error {
	colored := v.color.on(s.Out, os.Getenv)
	enableColors(out)
	t, err := screen.OpenTerminal(in, out)
	if err != nil {
		return err
	}
	defer t.Close() // also when something panics
	names := make([]string, len(list))
	for i, w := range list {
		names[i] = w.host
	}
	app := screen.NewApp(names, colored)
	tick := time.NewTicker(250 * time.Millisecond) // for countdowns, and for changes of the terminal's size
	defer tick.Stop()
	draw := func() {
		columns, lines := t.Size()
		t.Draw(app.Draw(columns, lines, time.Now()))
	}
	remaining := len(list)
	for remaining > 0 || v.polls == 0 {
		draw()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case e := <-events:
			if e.fatal != nil {
				panic(e.fatal)
			}
			p := app.Pane(e.service)
			p.Doing, p.DoingUntil = e.doing, e.doingUntil
			if e.result != nil {
				p.State, list[e.service].shownResult = e.result.state, *e.result
			}
			if e.done {
				remaining--
			}
		case key, ok := <-t.Keys():
			if !ok {
				return nil
			}
			w := list[app.Focus()]
			columns, _ := t.Size()
			switch app.HandleKey(key) {
			case screen.Quit:
				return nil
			case screen.Explain:
				v.showReport(app, w, columns, colored)
			case screen.Diff:
				showDiff(app, w, columns, colored)
			case screen.Save:
				app.ShowMessage(saveRecording(w), time.Now())
			}
		}
	}
	return nil
}

// showReport shows the last poll's report, wrapped at columns, over the screen.
func (v *watchFlags) showReport(app *screen.App, w *watchedService, columns int, colored bool) {
	last := w.shownResult.last
	if last == nil {
		app.ShowMessage("there is nothing to explain yet", time.Now())
		return
	}
	var b bytes.Buffer
	if err := text.Write(&b, last, text.Options{Width: columns, Color: colored, AllGroups: true}); err != nil {
		app.ShowMessage(err.Error(), time.Now())
		return
	}
	app.ShowText(w.host+", the last look", b.String())
}

// showDiff shows, over the screen, the changes since the poll before the last, and over all polls, wrapped at columns.
func showDiff(app *screen.App, w *watchedService, columns int, colored bool) {
	last, before := w.shownResult.last, w.shownResult.before
	if before == nil {
		app.ShowMessage("there is nothing to compare yet", time.Now())
		return
	}
	var b bytes.Buffer
	opts := difftext.Options{Width: columns, Color: colored, Full: true}
	err := difftext.Write(&b, compare.Reports(before, last), opts)
	if err == nil {
		err = difftext.WriteShifts(&b, w.shownResult.state.Shifts(), opts)
	}
	if err != nil {
		app.ShowMessage(err.Error(), time.Now())
		return
	}
	app.ShowText(w.host+", the last look and the one before", b.String())
}

// saveRecording copies the last recording to a new file in the working directory, and returns a message with its name or the error.
func saveRecording(w *watchedService) string {
	if w.shownResult.file == "" {
		return "there is nothing to save yet"
	}
	names, err := record.FileNames(timedName("watch"), []string{w.target})
	if err != nil {
		return err.Error()
	}
	size, err := copyTo(names[0], w.shownResult.file)
	if err != nil {
		return "not saved: " + err.Error()
	}
	return fmt.Sprintf("saved %s (%s): whylate explain %s", names[0], words.Bytes(size), words.ShellQuote(names[0]))
}

// copyTo writes a copy of the file from to the file name, which is replaced atomically, and returns its size in bytes.
func copyTo(name, from string) (size int64, err error) {
	src, err := os.Open(from)
	if err != nil {
		return 0, fmt.Errorf("the last recording is gone: %w", command.WithoutPath(err))
	}
	defer src.Close()
	return size, atomicfile.WriteTo(name, func(w io.Writer) (err error) { size, err = io.Copy(w, src); return err })
}
