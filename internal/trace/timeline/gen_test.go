package timeline

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"testing"
	"unsafe"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestResetForgetsEverything sets every field of a Gen, including fields that are added later, and checks that
// only memory remains after a reset. A forgotten field would show data of one generation in the next.
func TestResetForgetsEverything(t *testing.T) {
	g := new(Gen)
	open := func(f reflect.Value) reflect.Value {
		return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
	}
	// Mutexes are unlocked, fields of sync.Once are private, and decoding empties goids.
	var eachField func(v reflect.Value, path string, f func(v reflect.Value, path string))
	eachField = func(v reflect.Value, path string, f func(v reflect.Value, path string)) {
		for i := range v.NumField() {
			value, field := open(v.Field(i)), v.Type().Field(i)
			switch {
			case field.Type == reflect.TypeFor[goids](), field.Type.PkgPath() == "sync" && field.Type.Name() == "Mutex":
			case field.Type.Kind() == reflect.Struct:
				eachField(value, path+"."+field.Name, f)
			default:
				f(value, path+"."+field.Name)
			}
		}
	}
	n := 0
	eachField(reflect.ValueOf(g).Elem(), "Gen", func(v reflect.Value, path string) {
		n++
		switch v.Kind() {
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(1)
		case reflect.Uint8, reflect.Uint32, reflect.Uint64:
			v.SetUint(1)
		case reflect.Array: // padding of atomic types
		default:
			t.Fatalf("%s: no value for a %s", path, v.Type())
		}
	})
	check.True(t, n >= 45, "%d fields found", n)
	g.reset()
	eachField(reflect.ValueOf(g).Elem(), "Gen", func(v reflect.Value, path string) {
		if v.Kind() == reflect.Slice && v.Len() == 0 {
			return
		}
		check.True(t, v.IsZero(), "%s is left after a reset: %v", path, v)
	})
}

// A stalledReader returns the bytes of prefix, then calls onStall and blocks until release is closed.
type stalledReader struct {
	prefix  io.Reader
	onStall func()
	release <-chan struct{}
}

func (r *stalledReader) Read(p []byte) (int, error) {
	if n, err := r.prefix.Read(p); err == nil {
		return n, nil
	}
	r.onStall()
	<-r.release
	return 0, io.EOF
}

// TestInterrupted checks that reading ends with its context, also while no bytes arrive, and that later calls
// return the same error. It fails if a trace that was read to its end is then reported as interrupted, or if an
// interrupt waits for a source that sends nothing.
func TestInterrupted(t *testing.T) {
	b := tracetext.New(26)
	m := b.Thread(1)
	m.Block(1000, "sleep", "time.Sleep", "main.work")
	data := must.Have(b.Bytes())(t)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	decoder := func(r io.Reader) *Decoder {
		rd := must.Have(tracefmt.NewReader(r, tracefmt.Options{}))(t)
		d := NewDecoder(rd, 1)
		t.Cleanup(d.Close)
		return d
	}
	d := decoder(bytes.NewReader(data))
	if g, err := d.Next(canceled); g != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, %v", g, err)
	}
	if g, err := d.Next(t.Context()); g != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v, %v", g, err)
	}
	d = decoder(bytes.NewReader(data))
	must.Have(d.Next(t.Context()))(t)
	for _, ctx := range []context.Context{context.Background(), canceled} {
		if _, err := d.Next(ctx); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v, want %v", err, io.EOF)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan struct{})
	defer close(end)
	if g, err := decoder(&stalledReader{bytes.NewReader(data[:len(data)-1]), cancel, end}).Next(ctx); g != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted while no bytes come: %v, %v", g, err)
	}
}

// TestEveryWorkerRuns checks that onEachWorker calls f exactly once for each worker. It fails if one of two
// workers does all the work.
func TestEveryWorkerRuns(t *testing.T) {
	for n := range 4 {
		d := new(Decoder)
		for range n + 1 {
			d.workers = append(d.workers, new(worker))
		}
		callers := make(chan *worker, 2*len(d.workers))
		d.onEachWorker(func(w *worker) { callers <- w })
		close(callers)
		calls := map[*worker]int{}
		for w := range callers {
			calls[w]++
		}
		for i, w := range d.workers {
			check.True(t, calls[w] == 1, "worker %d of %d was called %d times", i, len(d.workers), calls[w])
		}
	}
}
