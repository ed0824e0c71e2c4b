package guard

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// records passes each record's text on.
type records struct {
	slog.Handler
	written chan string
}

func (r records) Enabled(context.Context, slog.Level) bool { return true }

func (r records) Handle(_ context.Context, record slog.Record) error {
	text := record.Message
	record.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	r.written <- text
	return nil
}

// TestDo tests that a panic becomes an error and a record with its stack, and that many panics become few records.
func TestDo(t *testing.T) {
	previous := slog.Default()
	defer slog.SetDefault(previous)
	r := records{previous.Handler(), make(chan string, 100)}
	slog.SetDefault(slog.New(r))
	var g Guard
	if err := g.Do("nothing", func() {}); err != nil {
		t.Error(err)
	}
	const panics = 20
	for range panics {
		err := g.Do("a callback", func() { panic("no\xff" + strings.Repeat("!", 1000)) })
		must.True(t, err != nil && strings.HasPrefix(err.Error(), "a callback panicked: no?!") && len(err.Error()) <= 400,
			"the error is %v", err)
	}
	all := ""
	for range 5 { // 1, 2, 4, 8, 16
		text := <-r.written
		check.True(t, strings.HasPrefix(text, "whylate: a callback panicked panic=no?!") && strings.Contains(text, "guard_test.go"),
			"the record is %s", text)
		_, count, _ := strings.Cut(text, " count=")
		all += strings.Fields(count)[0] + " "
	}
	for _, n := range []string{"1 ", "2 ", "4 ", "8 ", "16 "} {
		check.True(t, strings.Contains(" "+all, " "+n), "records have the counts %s", all)
	}
}

// TestHostile tests panics whose values, and loggers whose handlers, panic as well.
func TestHostile(t *testing.T) {
	previous := slog.Default()
	defer slog.SetDefault(previous)
	h := failing{make(chan bool, 9)}
	slog.SetDefault(slog.New(h))
	var g Guard
	for _, value := range []any{errors.New("x"), (*failing)(nil), failing{}, runtime.Error(nil)} {
		check.Error(t, g.Do("it", func() { panic(value) }), "%T is no error", value)
	}
	<-h.called
}

type failing struct{ called chan bool }

func (failing) Error() string                               { panic("in Error") }
func (failing) Enabled(context.Context, slog.Level) bool    { return true }
func (f failing) Handle(context.Context, slog.Record) error { f.called <- true; panic("in Handle") }
func (f failing) WithAttrs([]slog.Attr) slog.Handler        { return f }
func (f failing) WithGroup(string) slog.Handler             { return f }
