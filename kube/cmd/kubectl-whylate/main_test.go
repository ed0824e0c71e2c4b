//go:build unix

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/kube/internal/kubetest"
)

// The test program is the command, too.
func TestMain(m *testing.M) {
	if os.Getenv("KUBECTL_WHYLATE_TEST") != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// TestInterrupt: an interrupt ends the command with the right status, and no file remains.
func TestInterrupt(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	trace := testprog.Service(t, "h2-sleep").Trace
	sent := make(chan bool)
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "profiles") })
	mux.HandleFunc("/debug/pprof/trace", func(w http.ResponseWriter, r *http.Request) {
		w.Write(trace)
		w.(http.Flusher).Flush()
		close(sent)
		<-r.Context().Done()
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	api := new(kubetest.API)
	api.PutPod(&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "shop-1"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	api.AddPort("shop-1", 6060, s.Listener.Addr().String())
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "--kubeconfig", api.Config(t), "--seconds", "300", "--no-cpu", "shop-1")
	cmd.Env = append(os.Environ(), "KUBECTL_WHYLATE_TEST=1", "TMPDIR="+dir)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	must.Do(t, cmd.Start())
	<-sent
	must.Do(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != cli.ExitInterrupted {
		t.Errorf("exit status %d:\n%s", code, output.String())
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("left: %v, %v", files, err)
	}
}

// TestSecondInterrupt: the first interrupt cancels, and the second ends the command with the right status and removes its files.
func TestSecondInterrupt(t *testing.T) {
	dir, signals, canceled, exited := t.TempDir(), make(chan os.Signal), make(chan bool), make(chan int)
	go endAtSignals(signals, func() { close(canceled) }, dir, func(status int) { exited <- status })
	signals <- os.Interrupt
	<-canceled
	must.Have(os.Stat(dir))(t)
	signals <- os.Interrupt
	status := <-exited
	_, err := os.Stat(dir)
	check.True(t, status == cli.ExitInterrupted && os.IsNotExist(err), "status %d, files: %v", status, err)
}
