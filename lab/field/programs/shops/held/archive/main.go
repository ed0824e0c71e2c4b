// Archive asks another service for documents, which has them at once, and packs
// old ones beside, by zstd of klauspost/compress.
//
// Faults: pack (three goroutines pack as fast as they can, so that there is
// rarely a P for a request).
package main

import (
	"io"
	"math/rand/v2"
	"net/http"

	"github.com/klauspost/compress/zstd"

	"shop.example/shops/internal/run"
)

type archive struct{ client *http.Client }

func (a *archive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := a.document(r.FormValue("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Write(b)
}

func (a *archive) document(id string) ([]byte, error) {
	resp, err := a.client.Get("http://" + *run.Peer + "/" + id)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// pack packs documents for ever.
func pack() {
	e := run.Must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1)))
	document := make([]byte, 1<<20)
	for i := range document {
		document[i] = "etaoin shrdlu"[rand.IntN(13)]
	}
	for packed := []byte(nil); ; {
		packed = e.EncodeAll(document, packed[:0])
	}
}

func main() {
	run.Parse("pack")
	run.AnswerAsPeer(0, "a document")
	if run.Fault("pack") {
		for range 3 {
			go pack()
		}
	}
	run.ServePath("/document", &archive{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}})
}
