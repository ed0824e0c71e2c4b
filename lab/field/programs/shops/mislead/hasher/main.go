// Hasher computes in C for each request.
package main

/*
static unsigned int stir(unsigned int n) {
	volatile unsigned int h = 2166136261u;
	for (unsigned int i = 0; i < n; i++) { h ^= i; h *= 16777619u; }
	return h;
}
*/
import "C"

import (
	"fmt"
	"net/http"

	"shop.example/shops/internal/run"
)

func digest(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, uint32(C.stir(2_500_000)))
}

func main() {
	run.Parse("c")
	http.HandleFunc("/digest", digest)
	run.ServeRequests(nil)
}
