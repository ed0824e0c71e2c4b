// Audit writes a line of its log for every request, by zap or by log/slog,
// to a pipe whose reader is slow now and then.
//
// Faults: zap, slog (both write under a lock, so that all requests wait for
// the pipe; the healthy twin puts lines into a buffered channel).
package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"shop.example/shops/internal/run"
)

type handler struct {
	log func(who, what string)
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.log(r.RemoteAddr, r.URL.Path)
	fmt.Fprintln(w, "ok")
}

// dropping is a writer that loses lines rather than to wait.
type dropping chan []byte

func (d dropping) Write(line []byte) (int, error) {
	select {
	case d <- append([]byte(nil), line...):
	default:
	}
	return len(line), nil
}

// read reads 1 KB every 4 ms from a pipe: the log's slow reader.
func read() {
	for b := make([]byte, 1024); ; time.Sleep(4 * time.Millisecond) {
		if _, err := os.Stdin.Read(b); err != nil {
			return
		}
	}
}

func main() {
	run.Parse("zap", "slog")
	if *run.AsPeer {
		read()
		return
	}
	reader := exec.Command(os.Args[0], "-as-peer")
	var pipe io.Writer = run.Must(reader.StdinPipe())
	run.Check(reader.Start())
	h := &handler{}
	pad := string(make([]byte, 0))
	for len(pad) < 400 {
		pad += "headers and more "
	}
	switch {
	case run.Fault("zap"):
		z := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(pipe)), zap.InfoLevel))
		h.log = func(who, what string) {
			z.Info("request", zap.String("who", who), zap.String("what", what), zap.String("more", pad))
		}
	default:
		if !run.Fault("slog") {
			lines := make(dropping, 100)
			to := pipe
			go func() {
				for line := range lines {
					to.Write(line)
				}
			}()
			pipe = lines
		}
		s := slog.New(slog.NewJSONHandler(pipe, nil))
		h.log = func(who, what string) { s.Info("request", "who", who, "what", what, "more", pad) }
	}
	run.ServePath("/order", h)
}
