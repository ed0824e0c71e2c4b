// Orders reads orders from PostgreSQL through database/sql with pgx.
//
// Faults: pool (two connections for all requests), lock (a mutex is held over
// a query).
package main

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	_ "github.com/jackc/pgx/v5/stdlib"

	"shop.example/shops/internal/run"
)

type store struct {
	db *sql.DB

	mu    sync.Mutex
	stock map[int]int // by item, as last read
}

type order struct {
	ID, Item, Count int
	Note            string
}

// orders are those of an item, the newest first.
func (s *store) orders(item int) ([]order, error) {
	rows, err := s.db.Query(`select id, item, count, note from orders where item = $1 order by id desc limit 20`, item)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []order
	for rows.Next() {
		var o order
		if err := rows.Scan(&o.ID, &o.Item, &o.Count, &o.Note); err != nil {
			return nil, err
		}
		found = append(found, o)
	}
	return found, rows.Err()
}

// reserve counts what is ordered of an item; the answer takes 4 ms.
func (s *store) reserve(item int) (int, error) {
	if run.Fault("lock") {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	var n int
	err := s.db.QueryRow(`select coalesce(sum(count), 0)::int from orders, pg_sleep(0.004) where item = $1`, item).Scan(&n)
	if err == nil {
		if !run.Fault("lock") {
			s.mu.Lock()
			defer s.mu.Unlock()
		}
		s.stock[item] = n
	}
	return n, err
}

func (s *store) list(w http.ResponseWriter, r *http.Request) {
	item, _ := strconv.Atoi(r.FormValue("item"))
	found, err := s.orders(item)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	json.NewEncoder(w).Encode(found)
}

func (s *store) stocked(w http.ResponseWriter, r *http.Request) {
	item, _ := strconv.Atoi(r.FormValue("item"))
	n, err := s.reserve(item)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	json.NewEncoder(w).Encode(n)
}

func main() {
	run.Parse("pool", "lock")
	db := run.Must(sql.Open("pgx", *run.Backend))
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	if run.Fault("pool") {
		db.SetMaxOpenConns(2)
	}
	for _, q := range []string{
		`create table if not exists orders (id serial primary key, item int, count int, note text)`,
		`insert into orders (item, count, note) select i % 100, i % 7, 'note ' || i from generate_series(1, 5000) i where not exists (select from orders)`,
		`create index if not exists orders_item on orders (item)`,
	} {
		run.Must(db.Exec(q))
	}
	s := &store{db: db, stock: map[int]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/orders", s.list)
	mux.HandleFunc("/stock", s.stocked)
	run.ServeRequests(mux)
}
