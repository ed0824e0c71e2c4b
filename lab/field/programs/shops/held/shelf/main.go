// Shelf keeps what is asked for in a cache of hashicorp/golang-lru, and makes
// what is missing anew.
//
// It is the recording's environment that makes it collect again and again:
// GOMEMLIMIT is just above what the cache holds when it is full.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"

	lru "github.com/hashicorp/golang-lru/v2"

	"shop.example/shops/internal/run"
)

type book struct {
	Title string
	Words map[string]int
	Pages []*page
}

type page struct {
	Number int
	Text   string
}

type shelf struct{ books *lru.Cache[int, *book] }

// read stands for a database.
func read(n int) *book {
	b := &book{Title: fmt.Sprint("book ", n), Words: map[string]int{}}
	for i := range 60 {
		b.Words[fmt.Sprint("word ", i)] = i
		b.Pages = append(b.Pages, &page{i, fmt.Sprintf("page %d of %s", i, b.Title)})
	}
	return b
}

func (s *shelf) books10(w http.ResponseWriter, r *http.Request) {
	var found []*book
	for range 10 {
		n := rand.IntN(12000)
		b, ok := s.books.Get(n)
		if !ok {
			b = read(n)
			s.books.Add(n, b)
		}
		found = append(found, b)
	}
	if err := json.NewEncoder(w).Encode(found); err != nil {
		log.Print(err)
	}
}

func main() {
	run.Parse("memlimit")
	books := run.Must(lru.New[int, *book](10000))
	for i := range 10000 {
		books.Add(i, read(i))
	}
	run.ServePath("/books", http.HandlerFunc((&shelf{books}).books10))
}
