// Catalog shows products that are in Redis, by go-redis.
//
// Faults: pool (one connection for all requests, to a Redis that is 1 ms away).
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"shop.example/shops/internal/run"
)

type catalog struct {
	cache *redis.Client
}

// product is a product's page: its fields, who bought it, and what else they bought.
func (c *catalog) product(ctx context.Context, id string) (string, error) {
	fields, err := c.cache.HGetAll(ctx, "product:"+id).Result()
	if err != nil {
		return "", err
	}
	buyers, err := c.cache.ZRevRange(ctx, "buyers:"+id, 0, 9).Result()
	if err != nil {
		return "", err
	}
	also, err := c.cache.SMembers(ctx, "also:"+id).Result()
	return fmt.Sprint(fields, buyers, also), err
}

func (c *catalog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, err := c.product(r.Context(), r.FormValue("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, page)
}

// far is a network on the way to Redis: what it is given is there 1 ms later.
func far() {
	l := run.Must(net.Listen("tcp", *run.Listen))
	for {
		in := run.Must(l.Accept())
		out := run.Must(net.Dial("tcp", *run.Backend))
		go io.Copy(in, out)
		go func() {
			for b := make([]byte, 64<<10); ; {
				n, err := in.Read(b)
				if err != nil {
					return
				}
				time.Sleep(time.Millisecond)
				out.Write(b[:n])
			}
		}()
	}
}

func main() {
	run.Parse("pool")
	if *run.AsPeer {
		far()
	}
	ctx := context.Background()
	o := &redis.Options{Addr: *run.Backend, PoolSize: 10, MinIdleConns: 10}
	if run.Fault("pool") {
		o.Addr, o.PoolSize, o.MinIdleConns = *run.Peer, 1, 1
	}
	c := &catalog{redis.NewClient(o)}
	for id := range 200 {
		id := fmt.Sprint(id)
		p := c.cache.Pipeline()
		for f := range 10 {
			p.HSet(ctx, "product:"+id, fmt.Sprint("field", f), strings.Repeat("x", 40))
			p.ZAdd(ctx, "buyers:"+id, redis.Z{Score: float64(f), Member: fmt.Sprint("buyer", f)})
			p.SAdd(ctx, "also:"+id, f)
		}
		run.Must(p.Exec(ctx))
	}
	run.ServePath("/product", c)
}
