package flight_test

import (
	"log"
	"net/http"
	"time"

	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/mark"
)

// Requests of more than 300 ms are kept with the seconds before them, on at most 200 MB of disk.
func ExampleStart() {
	rec, err := flight.Start(flight.Options{Dir: "/var/lib/shop/flight", Slow: 300 * time.Millisecond, MaxDisk: 200e6})
	if err != nil {
		log.Fatal(err)
	}
	defer rec.Stop()

	mux := http.NewServeMux()
	log.Fatal(http.ListenAndServe("localhost:8080", mark.Handler(mux)))
}
