// Thumbs has pictures made smaller.
//
// Faults: exec (a program is started for each, and takes 10 ms; sleep stands
// for it. Without the fault the service has it done by another service that is
// as far away, in less than 1 ms).
package main

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"time"

	"shop.example/shops/internal/run"
)

type thumbs struct{ client *http.Client }

func (t *thumbs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	b, err := t.shrink(ctx, r.FormValue("picture"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Write(b)
}

func (t *thumbs) shrink(ctx context.Context, picture string) ([]byte, error) {
	if run.Fault("exec") {
		return exec.CommandContext(ctx, "sleep", "0.01").Output()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+*run.Peer+"/"+picture, nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func main() {
	run.Parse("exec")
	run.AnswerAsPeer(0, "small")
	run.ServePath("/thumb", &thumbs{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}})
}
