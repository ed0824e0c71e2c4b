// Register sells things and keeps what was sold in SQLite, of modernc.org. It
// has one connection, as its authors advise where many write.
//
// Faults: held (the transaction is open, and with it the connection, while
// another service is asked for the tax, which takes 6 ms).
package main

import (
	"context"
	"database/sql"
	"io"
	"net/http"
	"time"

	_ "modernc.org/sqlite"

	"shop.example/shops/internal/run"
)

type register struct {
	db     *sql.DB
	client *http.Client
}

func (s *register) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.sell(r.Context(), r.FormValue("item")); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	io.WriteString(w, "sold\n")
}

func (s *register) sell(ctx context.Context, item string) (err error) {
	var tax string
	if !run.Fault("held") {
		if tax, err = s.tax(ctx); err != nil {
			return err
		}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var price int
	if err := tx.QueryRowContext(ctx, "SELECT price FROM items WHERE name = ?", item).Scan(&price); err != nil {
		return err
	}
	if run.Fault("held") {
		if tax, err = s.tax(ctx); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO sales (item, price, tax) VALUES (?, ?, ?)", item, price, tax); err != nil {
		return err
	}
	return tx.Commit()
}

// tax asks the other service.
func (s *register) tax(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+*run.Peer+"/tax", nil)
	if err != nil {
		return "", err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func main() {
	run.Parse("held")
	run.AnswerAsPeer(6*time.Millisecond, "19")
	db := run.Must(sql.Open("sqlite", "file:register.db?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"))
	db.SetMaxOpenConns(1)
	run.Must(db.Exec("CREATE TABLE items (name TEXT PRIMARY KEY, price INT); CREATE TABLE sales (item TEXT, price INT, tax TEXT); INSERT INTO items VALUES ('pen', 3)"))
	run.ServePath("/sell", &register{db, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}})
}
