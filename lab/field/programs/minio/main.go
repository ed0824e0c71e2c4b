// Minio is MinIO's server with net/http/pprof beside it: its own endpoint for profiles wants a signed request.
package main

import (
	"log"
	"net/http"
	_ "net/http/pprof"
	"os"

	minio "github.com/minio/minio/cmd"
)

// main serves pprof at the address of the first argument; the rest are minio's.
func main() {
	go func() { log.Fatal(http.ListenAndServe(os.Args[1], nil)) }()
	minio.Main(append([]string{"minio"}, os.Args[2:]...))
}
