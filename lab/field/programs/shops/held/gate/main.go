// Gate writes down who comes in, four lines for each, by sirupsen/logrus to a file.
//
// Faults: sync (the file is opened with O_SYNC, so each line waits for the
// disk, under the logger's lock).
package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/sirupsen/logrus"

	"shop.example/shops/internal/run"
)

type gate struct{ log *logrus.Logger }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := r.FormValue("who")
	visit := g.log.WithFields(logrus.Fields{"who": who, "from": r.RemoteAddr})
	visit.Info("rang the bell")
	visit.WithField("door", 2).Info("was let in")
	visit.WithField("badge", 17).Info("has a badge")
	visit.Info("went through")
	fmt.Fprintln(w, "hello", who)
}

func main() {
	run.Parse("sync")
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if run.Fault("sync") {
		flags |= os.O_SYNC
	}
	f := run.Must(os.OpenFile("gate.log", flags, 0o600))
	l := logrus.New()
	l.SetOutput(f)
	l.SetFormatter(&logrus.JSONFormatter{})
	run.ServePath("/enter", &gate{l})
}
