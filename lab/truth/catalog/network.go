package catalog

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/whylate/whylate/lab/truth/wire"
)

func networkServices() []*Service {
	readLoop := Site{Func: "net/http.(*persistConn).readLoop"}
	return []*Service{
		{Name: "connection-pool", Doc: "database/sql with two connections for six clients; the database takes its time", Proto: "http1", Load: slowOnlyLoad(6),
			Truth: Truth{Kind: "http1", Group: "(*store).query", Cause: "network", Via: []string{"select"},
				Injected: "10 ms in the database, 6 clients for 2 connections", LeastNS: 10e6, InjectedNS: 10e6, Share: 0.97},
			Fix: "2 connections -> 8", FixAtMost: 0.6, start: startStore},
		{Name: "slow-database", Doc: "database/sql with connections enough; one query is slow", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*store).query", Cause: "network", Injected: "15 ms in the database", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.97},
			Fix:   "15 ms -> 2 ms", FixAtMost: 0.5, start: startSlowStore},
		{Name: "fan-out", Doc: "four HTTP calls at once; one of the peers is slow", Proto: "http1", Load: mixedLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*fanOut).gather", Cause: "network", Site: readLoop, Via: []string{"waitgroup", "select"},
				Injected: "25 ms until one of four peers answers", LeastNS: 25e6, InjectedNS: 25e6, Share: 0.98},
			Fix: "25 ms -> 2 ms", FixAtMost: 0.5, start: startFanOut},
		{Name: "max-conns", Doc: "http.Transport may open one connection to a host that four clients need", Proto: "http1", Load: slowOnlyLoad(4),
			Truth: Truth{Kind: "http1", Group: "(*caller).call", Cause: "network", Site: readLoop, Via: []string{"select"},
				Injected: "10 ms until the peer answers, 4 clients for one connection", LeastNS: 10e6, InjectedNS: 10e6, Share: 0.98},
			Fix: "MaxConnsPerHost 1 -> 8", FixAtMost: 0.5, start: startCaller},
		{Name: "reverse-proxy", Doc: "httputil.ReverseProxy to a slow backend: only the standard library on the request's stacks", Proto: "http1", Load: slowOnlyLoad(3),
			Truth: Truth{Kind: "http1", Cause: "network", Site: readLoop, Via: []string{"select"}, Injected: "20 ms until the backend answers", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.95},
			Fix:   "20 ms -> 2 ms", FixAtMost: 0.5, start: startProxy},
		{Name: "lock-network", Doc: "a mutex is held over a call to another process", Proto: "http1", Load: slowOnlyLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*account).balance", Cause: "network", Via: []string{"lock"},
				Injected: "8 ms until the other process answers, under the mutex, 3 clients", LeastNS: 8e6, InjectedNS: 8e6, Share: 0.98},
			Fix: "8 ms -> 1 ms", FixAtMost: 0.6, start: startAccount},
		{Name: "grpc-client", Doc: "the handler calls a slow gRPC service", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*grpcCaller).ask", Cause: "network", Via: []string{"select"},
				Site:     Site{Func: "google.golang.org/grpc/internal/transport.(*http2Client).reader"},
				OrSites:  []Site{{Func: "google.golang.org/grpc/internal/transport/readyreader.(*nonBlockingReader).ReadOnReady"}, {Func: "golang.org/x/net/http2.readFrameHeader"}, {Func: "golang.org/x/net/http2.(*Framer).ReadFrameHeader"}, {Func: "google.golang.org/grpc/internal/transport.(*framer).readFrame"}},
				Injected: "15 ms in the gRPC service", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.97,
				Doubt: "which frame of the connection's reader is named is a matter of which dependency counts"},
			Fix: "15 ms -> 2 ms", FixAtMost: 0.6, start: startGRPCCaller},
		{Name: "h2-client", Doc: "the handler calls a slow peer over HTTP/2", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*h2Caller).ask", Cause: "network", Via: []string{"select"},
				Site:     Site{Func: "net/http.(*http2clientConnReadLoop).run"},
				OrSites:  []Site{{Func: "net/http.(*http2ClientConn).readLoop"}},
				Injected: "15 ms until the peer answers", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.97},
			Fix: "15 ms -> 2 ms", FixAtMost: 0.6, start: startH2Caller},
		{Name: "dns", Doc: "the handler looks up a name, and the name server is slow", Proto: "http1", Load: mixedLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*lookup).ask", Cause: "network", Via: []string{"chan"},
				Site:     Site{Func: "net.(*Resolver).exchange"},
				OrSites:  []Site{{Func: "net.(*Resolver).goLookupIPCNAMEOrder"}, {Func: "net.(*Resolver).goLookupIPCNAMEOrder.func3.1"}, {Func: "net.(*Resolver).tryOneName"}, {Func: "net.(*Resolver).lookupIPAddr"}},
				Injected: "20 ms in the name server", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.98,
				Doubt: "the resolver's goroutines have only frames of the standard library: which of them is the meaningful one is open"},
			Fix: "20 ms -> 2 ms", FixAtMost: 0.6, start: startLookup},
		{Name: "slow-reader", Doc: "the client reads a large response slowly", Proto: "http1",
			Load: Load{Conns: 3, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true, Client: "slow-read"}, {Path: "/fast", Weight: 1}}},
			Truth: Truth{Kind: "http1", Group: "(*download).send", Cause: "network", Injected: "the client rests 3 ms after each 256 KiB of 16 MiB", Unmeasured: true, ShareMin: 0.8,
				Doubt: "the socket buffers hold the last megabytes when the handler has ended, so the client's time is longer than the service's"},
			Fix: "64 KiB instead of 16 MiB", FixAtMost: 0.5, start: startDownload},
		{Name: "slow-sender", Doc: "the client sends its body slowly", Proto: "http1",
			Load:  Load{Conns: 3, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true, Client: "slow-send"}, {Path: "/fast", Weight: 1}}},
			Truth: Truth{Kind: "http1", Group: "upload.receive", Cause: "network", Injected: "the client rests 5 ms before each of four pieces", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.97},
			Fix:   "nothing: it is the client's", start: startUpload},
		{Name: "slow-pipe", Doc: "a logger writes to a pipe whose reader is slow, under the logger's mutex", Proto: "http1", Load: slowOnlyLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*logged).ask", Cause: "network", Via: []string{"lock"},
				Injected: "the reader takes 4 KiB each 4 ms, a request logs 8 KiB", InjectedNS: 8e6, Share: 0.98},
			Fix: "the reader does not rest", FixAtMost: 0.5, start: startLogged},
		{Name: "dial", Doc: "each call to the peer opens a connection, whose greeting is slow", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*dialer).ask", Cause: "network", Injected: "15 ms until the greeting", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.98},
			Fix:   "15 ms -> 2 ms", FixAtMost: 0.6, start: startDialer},
	}
}

// lineDriver is a database/sql driver that sends a query as a line over TCP and
// takes the next line for the only value of the only row.
type lineDriver struct{ addr string }

func (d lineDriver) Driver() driver.Driver { return d }

func (d lineDriver) Open(string) (driver.Conn, error) { return d.Connect(context.Background()) }

func (d lineDriver) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", d.addr)
	if err != nil {
		return nil, err
	}
	return &lineConn{c, bufio.NewReader(c)}, nil
}

type lineConn struct {
	c net.Conn
	r *bufio.Reader
}

func (c *lineConn) Prepare(query string) (driver.Stmt, error) {
	return nil, errors.New("this driver prepares no statements")
}
func (c *lineConn) Close() error { return c.c.Close() }
func (c *lineConn) Begin() (driver.Tx, error) {
	return nil, errors.New("this driver has no transactions")
}

func (c *lineConn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	line, err := c.roundTrip(query)
	if err != nil {
		return nil, err
	}
	return &oneRow{value: line}, nil
}

func (c *lineConn) roundTrip(query string) (string, error) {
	if _, err := io.WriteString(c.c, query+"\n"); err != nil {
		return "", err
	}
	return c.readLine()
}

func (c *lineConn) readLine() (string, error) {
	return c.r.ReadString('\n') // truth: site connection-pool, site slow-database, site lock-network
}

type oneRow struct {
	value string
	read  bool
}

func (r *oneRow) Columns() []string { return []string{"value"} }
func (r *oneRow) Close() error      { return nil }
func (r *oneRow) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, dest[0] = true, r.value
	return nil
}

type store struct{ db *sql.DB }

func startStore(e *Env) (*Parts, error) { return openStore(e, e.pickNumber(2, 8), 10*time.Millisecond) }

func startSlowStore(e *Env) (*Parts, error) {
	return openStore(e, 8, e.pickDuration(15*time.Millisecond, 2*time.Millisecond))
}

func openStore(e *Env, conns int, d time.Duration) (*Parts, error) {
	addr, err := e.startServer("lines", d.String())
	if err != nil {
		return nil, err
	}
	s := &store{sql.OpenDB(lineDriver{addr})}
	s.db.SetMaxOpenConns(conns)
	s.db.SetMaxIdleConns(conns)
	return &Parts{HTTP: withFast(s.query)}, nil
}

func (s *store) query(w http.ResponseWriter, r *http.Request) {
	t := time.Now()
	var value string
	if err := s.db.QueryRowContext(r.Context(), "select value").Scan(&value); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, time.Since(t))
}

type fanOut struct {
	client *http.Client
	urls   []string
}

func startFanOut(e *Env) (*Parts, error) {
	addr, err := e.startServer("http", e.pickDuration(25*time.Millisecond, 2*time.Millisecond).String())
	if err != nil {
		return nil, err
	}
	s := &fanOut{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	for _, p := range []string{"/fast", "/slow", "/fast", "/fast"} {
		s.urls = append(s.urls, "http://"+addr+p)
	}
	return &Parts{HTTP: withFast(s.gather)}, nil
}

func (s *fanOut) gather(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	var wg sync.WaitGroup
	for _, u := range s.urls {
		wg.Go(func() { s.fetch(u) })
	}
	wg.Wait()
	answer(w, time.Since(t))
}

func (s *fanOut) fetch(url string) {
	res, err := s.client.Get(url) // truth: site fan-out
	if err != nil {
		return
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
}

type caller struct {
	client *http.Client
	url    string
}

func startCaller(e *Env) (*Parts, error) {
	addr, err := e.startServer("http", "10ms")
	if err != nil {
		return nil, err
	}
	s := &caller{&http.Client{Transport: &http.Transport{MaxConnsPerHost: e.pickNumber(1, 8), MaxIdleConnsPerHost: 8}}, "http://" + addr + "/slow"}
	return &Parts{HTTP: withFast(s.call)}, nil
}

func (s *caller) call(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	res, err := s.client.Get(s.url) // truth: site max-conns
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	answer(w, time.Since(t))
}

func startProxy(e *Env) (*Parts, error) {
	addr, err := e.startServer("http", e.pickDuration(20*time.Millisecond, 2*time.Millisecond).String())
	if err != nil {
		return nil, err
	}
	return &Parts{HTTP: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})}, nil
}

type download struct{ data []byte }

func startDownload(e *Env) (*Parts, error) {
	s := &download{make([]byte, e.pickNumber(16<<20, 64<<10))}
	return &Parts{HTTP: withFast(s.send)}, nil
}

// send cannot say how long it waited before it has written; its blame goes
// out as a trailer.
func (s *download) send(w http.ResponseWriter, _ *http.Request) {
	declareBlame(w)
	t := time.Now()
	w.Write(s.data) // truth: site slow-reader
	blame(w, time.Since(t))
}

type upload struct{}

func startUpload(*Env) (*Parts, error) { return &Parts{HTTP: withFast(upload{}.receive)}, nil }

func (upload) receive(w http.ResponseWriter, r *http.Request) {
	t := time.Now()
	if err := takeBody(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, time.Since(t))
}

func takeBody(r *http.Request) error {
	_, err := io.Copy(io.Discard, r.Body) // truth: site slow-sender
	return err
}

type dialer struct{ addr string }

func startDialer(e *Env) (*Parts, error) {
	addr, err := e.startServer("greeting", e.pickDuration(15*time.Millisecond, 2*time.Millisecond).String())
	if err != nil {
		return nil, err
	}
	return &Parts{HTTP: withFast((&dialer{addr}).ask)}, nil
}

func (s *dialer) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	if err := s.greet(); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	answer(w, time.Since(t))
}

func (s *dialer) greet() error {
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil { // truth: site dial
		return fmt.Errorf("waiting for the greeting: %w", err)
	}
	return nil
}

type account struct {
	mu   sync.Mutex
	conn *lineConn
}

func startAccount(e *Env) (*Parts, error) {
	addr, err := e.startServer("lines", e.pickDuration(8*time.Millisecond, time.Millisecond).String())
	if err != nil {
		return nil, err
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &account{conn: &lineConn{c, bufio.NewReader(c)}}
	return &Parts{HTTP: withFast(s.balance)}, nil
}

func (s *account) balance(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.mu.Lock()
	_, err := s.conn.roundTrip("balance")
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	answer(w, time.Since(t))
}

type grpcCaller struct{ conn *grpc.ClientConn }

func startGRPCCaller(e *Env) (*Parts, error) {
	addr, err := e.startServer("grpc", e.pickDuration(15*time.Millisecond, 2*time.Millisecond).String())
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &Parts{HTTP: withFast((&grpcCaller{conn}).ask)}, nil
}

func (s *grpcCaller) ask(w http.ResponseWriter, r *http.Request) {
	t := time.Now()
	err := s.conn.Invoke(r.Context(), "/"+wire.GRPCService+"/Slow", wrapperspb.String("x"), new(wire.Text)) // truth: site grpc-client
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	answer(w, time.Since(t))
}

type h2Caller struct {
	client *http.Client
	url    string
}

func startH2Caller(e *Env) (*Parts, error) {
	addr, err := e.startServer("http", e.pickDuration(15*time.Millisecond, 2*time.Millisecond).String())
	if err != nil {
		return nil, err
	}
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	s := &h2Caller{&http.Client{Transport: &http.Transport{Protocols: p}}, "http://" + addr + "/slow"}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *h2Caller) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	res, err := s.client.Get(s.url) // truth: site h2-client
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	answer(w, time.Since(t))
}

type lookup struct {
	res  *net.Resolver
	next atomic.Int64
}

func startLookup(e *Env) (*Parts, error) {
	addr, err := e.startServer("names", e.pickDuration(20*time.Millisecond, 2*time.Millisecond).String())
	if err != nil {
		return nil, err
	}
	s := &lookup{res: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", addr)
	}}}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

// ask looks up another name each time: equal ones at the same time share one
// query.
func (s *lookup) ask(w http.ResponseWriter, r *http.Request) {
	t := time.Now()
	addrs, err := s.res.LookupHost(r.Context(), fmt.Sprintf("n%d.lab.test.", s.next.Add(1))) // truth: site dns
	if err != nil || len(addrs) != 1 {
		http.Error(w, fmt.Sprint(addrs, err), http.StatusBadGateway)
		return
	}
	answer(w, time.Since(t))
}
