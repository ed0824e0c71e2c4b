package mark_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/whylate/whylate/service/mark"
)

// Requests are named by the pattern of the route that served them.
func ExampleHandler() {
	stop, _ := mark.Watch(func(e mark.Ended) { fmt.Println(e.Kind, e.Name, e.Status) })
	defer stop()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) })
	mark.Handler(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/users/7", nil))
	// Output:
	// http GET /users/{id} 4xx
}

// A job that no request starts is marked around its function.
func ExampleDo() {
	stop, _ := mark.Watch(func(e mark.Ended) { fmt.Println(e.Kind, e.Name, e.Status) })
	defer stop()

	err := mark.Do(context.Background(), "send invoices", func(context.Context) error { return errors.New("no printer") })
	fmt.Println(err)
	// Output:
	// job send invoices error
	// no printer
}
