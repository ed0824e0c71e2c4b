// Export answers with a long list in JSON, which it makes for every
// request by encoding/json.
//
// It is the recording's environment that makes it collect too often: GOGC=10.
// The service holds 40 MB, as one with a cache does.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"shop.example/shops/internal/run"
)

type item struct {
	Name  string            `json:"name"`
	Price float64           `json:"price"`
	Tags  map[string]string `json:"tags"`
}

var cache []*item

func list(w http.ResponseWriter, r *http.Request) {
	items := make([]map[string]any, 0, 1500)
	for _, it := range cache[:1500] {
		items = append(items, map[string]any{"name": it.Name, "price": it.Price, "tags": it.Tags})
	}
	b, err := json.Marshal(items)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Write(b)
}

func main() {
	run.Parse("gogc")
	for i := range 80000 {
		cache = append(cache, &item{fmt.Sprint("item ", i), float64(i) / 7, map[string]string{"shelf": fmt.Sprint(i % 99), "row": fmt.Sprint(i % 7)}})
	}
	run.ServePath("/list", http.HandlerFunc(list))
}
