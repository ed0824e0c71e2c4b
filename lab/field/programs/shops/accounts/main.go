// Accounts charges accounts in PostgreSQL through pgxpool, and asks a payment
// service.
//
// Faults: held (the connection is held over the call of the payment service).
package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop.example/shops/internal/run"
)

type bank struct {
	pool    *pgxpool.Pool
	payment string // URL
}

// authorize asks the payment service, which takes 20 ms.
func (b *bank) authorize(id int) error {
	resp, err := http.Get(b.payment + "/authorize?id=" + strconv.Itoa(id))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// charge takes one from an account.
func (b *bank) charge(ctx context.Context, id int) (balance int, err error) {
	if !run.Fault("held") {
		if err := b.authorize(id); err != nil {
			return 0, err
		}
	}
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	if run.Fault("held") {
		if err := b.authorize(id); err != nil {
			return 0, err
		}
	}
	err = conn.QueryRow(ctx, `update accounts set balance = balance - 1 where id = $1 returning balance`, id).Scan(&balance)
	return balance, err
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.Atoi(r.FormValue("id"))
	balance, err := b.charge(r.Context(), id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	json.NewEncoder(w).Encode(map[string]int{"balance": balance})
}

func main() {
	run.Parse("held")
	run.AnswerAsPeer(20*time.Millisecond, "")
	ctx := context.Background()
	pool := run.Must(pgxpool.New(ctx, *run.Backend+"&pool_max_conns=4"))
	for _, q := range []string{
		`create table if not exists accounts (id int primary key, balance int)`,
		`insert into accounts select i, 100000 from generate_series(1, 1000) i on conflict do nothing`,
	} {
		run.Must(pool.Exec(ctx, q))
	}
	run.ServePath("/charge", &bank{pool, "http://" + *run.Peer})
}
