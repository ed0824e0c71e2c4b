package redact_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"runtime/trace"

	"github.com/whylate/whylate/service/redact"
)

// The trace does not contain the program's logs, but the texts that runtime/trace needs.
func ExampleNewWriter() {
	var file bytes.Buffer
	w := redact.NewWriter(&file, redact.Options{Logs: redact.Drop})
	if err := trace.Start(w); err != nil {
		log.Fatal(err)
	}
	trace.Log(context.Background(), "card", "4111 1111 1111 1111")
	trace.Stop()
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(bytes.Contains(file.Bytes(), []byte("4111")), bytes.Contains(file.Bytes(), []byte("ExampleNewWriter")))
	// Output: false true
}
