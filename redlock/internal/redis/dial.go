package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// Options are the address of a Redis master, and how to log in to it.
type Options struct {
	Name    string // its name in errors and STATUS
	Address string // "host:port" or "unix:/path"

	// Database is the number of the database, which Dial selects.
	Database int

	Username string
	// Password is called for each connection, so that the next one uses a changed file. Nil: no
	// password.
	Password func() (string, error)
	// TLS is called for each connection, for the same reason. Nil: no TLS.
	TLS func() (*tls.Config, error)
	// Embedded, Durable, Joining, Leaving: see Node.
	Embedded bool
	Durable  bool
	Joining  bool
	Leaving  bool
	// Dial replaces the network, for an embedded node or a test. Nil: Address is dialled.
	Dial func(ctx context.Context) (net.Conn, error)
}

// NewNode returns a Redis master as a Node. It dials nothing yet.
func NewNode(o Options) Node {
	n := Node{Name: o.Name, Address: o.shownAddress(), Database: o.Database, User: o.Username, Embedded: o.Embedded, Durable: o.Durable, Joining: o.Joining, Leaving: o.Leaving}
	n.Dial = func(ctx context.Context) (Conn, error) { return dialRedis(ctx, o) }
	n.Listen = func(ctx context.Context, channel string, heard func(message string)) (Listener, error) {
		return listenRedis(ctx, o, channel, heard)
	}
	return n
}

// shownAddress returns the address as messages and STATUS show it: "host:port/2" with a database.
func (o Options) shownAddress() string {
	if o.Database == 0 {
		return o.Address
	}
	return fmt.Sprintf("%s/%d", o.Address, o.Database)
}

// Handshake makes a TLS connection to the node as Dial does, and closes it. It shows how a new
// connection would end up, while there is an old one. It returns by the time ctx ends. The zero
// state means that the node has no TLS.
func (o Options) Handshake(ctx context.Context) (tls.ConnectionState, error) {
	conn, err := (&onceDialer{options: o}).open(ctx, &net.Dialer{Timeout: timeLeft(ctx)})
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.ConnectionState(), nil
	}
	return tls.ConnectionState{}, nil
}

func dialRedis(ctx context.Context, o Options) (Conn, error) {
	option, dialer, err := clientOption(ctx, o)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, dialer.close) // the driver's log-in uses no context
	client, err := rueidis.NewClient(option)
	if err != nil {
		stop()
		dialer.close()
		if client != nil {
			client.Close()
		}
		if ctx.Err() != nil && !errors.Is(err, errNoHandshake) { // the other errors only report that we closed the connection
			return nil, &LoginError{Connect: dialer.connectTime(), Err: context.Cause(ctx)}
		}
		return nil, dialer.explain(loginError(err, option.Password))
	}
	if !stop() { // ctx ended at the same moment, and the connection with it
		client.Close()
		return nil, &LoginError{Connect: dialer.connectTime(), Err: context.Cause(ctx)}
	}
	conn, err := dialer.guard().detach()
	client.Close()
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &redisConn{conn: conn, connectTime: dialer.connectTime(), in: newReplyReader(conn)}, nil
}

// clientOption sets the driver up for one plain connection. The driver retries nothing, caches
// nothing, and does not reconnect.
func clientOption(ctx context.Context, o Options) (rueidis.ClientOption, *onceDialer, error) {
	dialer := &onceDialer{options: o}
	option := rueidis.ClientOption{
		InitAddress:         []string{o.Address},
		DialCtxFn:           dialer.dial,
		Dialer:              net.Dialer{Timeout: timeLeft(ctx), KeepAlive: -1}, // -1: no pings by the driver
		SelectDB:            o.Database,
		Username:            o.Username,
		ClientName:          "redlockd",
		ClientSetInfo:       rueidis.DisableClientSetInfo,
		ForceSingleClient:   true,
		DisableRetry:        true,
		DisableCache:        true,
		PipelineMultiplex:   -1,
		RingScaleEachConn:   4,
		ReadBufferEachConn:  16 << 10,
		WriteBufferEachConn: 64 << 10,         // see guardedConn.Write: a Redis accepts at most 16 KB before the log-in
		ConnWriteTimeout:    longestRoundTrip, // the deadlines of the log-in and of the pings are always earlier
	}
	var err error
	if o.Password != nil {
		option.Password, err = o.Password()
	}
	return option, dialer, err
}

// timeLeft returns the time until ctx ends; 5 s if it has no deadline.
func timeLeft(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), time.Millisecond)
	}
	return 5 * time.Second
}

// explainHangUp explains an EOF, which alone would look like a fault of redlockd.
func explainHangUp(err error) error {
	if !hasHungUp(err) {
		return err
	}
	return fmt.Errorf("it ended the connection, or something between did (%w)", err)
}

// serverError returns an error that a node answered in these words.
func serverError(text string) ServerError { return ServerError(cmp.Or(withoutArguments(text), "ERR")) }

// driverError turns an error that the node answered into a ServerError, and leaves errors of the
// connection unchanged.
func driverError(err error) error {
	if answer, ok := rueidis.IsRedisErr(err); ok {
		return serverError(answer.Error())
	}
	return err
}

// loginError returns an error of the log-in without the password.
func loginError(err error, password string) error {
	err = driverError(err)
	if !IsServerError(err) {
		return err
	}
	text := err.Error()
	if password != "" {
		text = strings.ReplaceAll(text, password, "[redacted]")
	}
	return ServerError(text)
}

// withoutArguments removes the arguments that a server repeats if it does not know a command. The
// reader of an error must not see keys, tokens and passwords. And a reason that differs each time
// would be logged each time.
func withoutArguments(text string) string {
	if text, _, repeats := strings.Cut(text, "with args beginning with"); repeats {
		return text + "with arguments that are not shown here"
	}
	return text
}

// IsServerError reports whether the node itself answered the error.
func IsServerError(err error) bool {
	var answer ServerError
	return errors.As(err, &answer)
}

// onceDialer dials once. The driver would silently reconnect when the connection breaks. Then a
// release could be sent on another connection than the acquire before it.
type onceDialer struct {
	options Options

	mu      sync.Mutex // guards what follows; not held while dialling; no other mutex is taken inside it
	used    bool
	closed  bool
	conn    *guardedConn
	connect time.Duration // how long the network took to connect: about a round trip; 0: it did not
}

// LoginError means that the node did not answer the log-in in time.
type LoginError struct {
	Connect time.Duration // how long the network took to connect: about a round trip; 0: it did not
	Err     error
}

func (e *LoginError) Error() string { return e.Err.Error() }
func (e *LoginError) Unwrap() error { return e.Err }

// noteConnect records that the network has connected.
func (d *onceDialer) noteConnect(since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connect = max(time.Since(since), 1)
}

// connectTime returns how long the network took to connect; 0: it did not.
func (d *onceDialer) connectTime() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.connect
}

var errDialedBefore = errors.New("the connection is over")

func (d *onceDialer) dial(ctx context.Context, _ string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	if !d.claim() {
		return nil, errDialedBefore
	}
	conn, err := d.open(ctx, dialer)
	if err != nil {
		return nil, err
	}
	return d.store(conn)
}

func (d *onceDialer) claim() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.used
	d.used = true
	return first
}

// store stores the connection for close. If close came first, store closes it.
func (d *onceDialer) store(plain net.Conn) (net.Conn, error) {
	conn := newGuardedConn(plain)
	d.mu.Lock()
	d.conn = conn
	closed := d.closed
	d.mu.Unlock()
	if closed {
		conn.Close()
		return nil, errDialedBefore
	}
	return conn, nil
}

// guard returns the connection, once there is one.
func (d *onceDialer) guard() *guardedConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conn
}

func (d *onceDialer) close() {
	d.mu.Lock()
	d.closed = true
	conn := d.conn
	d.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

var errNoHandshake = errors.New("no answer to the TLS handshake in time: it hangs, or does not speak TLS there (tls-port in its redis.conf)")

// explain explains an error of the log-in. If the node did not answer a single byte, it gives the
// likely reason.
func (d *onceDialer) explain(err error) error {
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	switch {
	case !hasHungUp(err) || conn == nil || conn.hasReceived.Load():
		return explainHangUp(withAdvice(err))
	case d.options.TLS == nil && !strings.HasPrefix(d.options.Address, "unix:"):
		return fmt.Errorf("it ended the connection before it answered the login: does it speak TLS there? Then it needs a tls block in the config (%w)", err)
	}
	return fmt.Errorf("it ended the connection before it answered the login (%w)", err)
}

// withAdvice adds the fix to errors that mean the same for every node.
func withAdvice(err error) error {
	switch dns := (*net.DNSError)(nil); {
	case errors.As(err, &dns):
		return fmt.Errorf("the name in its address cannot be resolved: correct it, or the DNS of this host (%w)", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return &explained{"connection refused: start Redis there, or correct its address and port", err}
	case IsServerError(err) && strings.Contains(err.Error(), "DB index is out of range"):
		return fmt.Errorf("%w: it has no database of that number: correct database in the config, or raise databases in its redis.conf", err)
	case IsServerError(err) && strings.Contains(err.Error(), "SELECT is not allowed in cluster mode"):
		return fmt.Errorf("%w: a node of a cluster has no other databases, and no node of redlockd may be one", err)
	case IsServerError(err) && strings.Contains(err.Error(), "max number of clients reached"):
		return fmt.Errorf("%w: raise maxclients in its redis.conf, or end connections there (CLIENT LIST)", err)
	}
	return err
}

// explained is an error with another text, which is the same for all nodes: the error has an address.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

func hasHungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// open connects, with TLS if it is configured.
func (d *onceDialer) open(ctx context.Context, dialer *net.Dialer) (net.Conn, error) {
	began := time.Now()
	if d.options.Dial != nil {
		conn, err := d.options.Dial(ctx)
		if err == nil {
			d.noteConnect(began)
		}
		return conn, err
	}
	network, address := "tcp", d.options.Address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	plain := net.Dialer{Timeout: dialer.Timeout, KeepAlive: 15 * time.Second}
	if d.options.TLS == nil {
		conn, err := plain.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		d.noteConnect(began)
		return withRawIO(conn), nil
	}
	config, err := d.options.TLS()
	if err != nil {
		return nil, err
	}
	began = time.Now() // the files may be read slowly
	conn, err := plain.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.noteConnect(began)
	return tlsHandshake(ctx, conn, config, dialer.Timeout)
}

// tlsHandshake makes the TLS handshake, and closes the connection if that fails.
func tlsHandshake(ctx context.Context, conn net.Conn, config *tls.Config, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	secure := tls.Client(conn, config)
	err := secure.HandshakeContext(ctx)
	if err == nil {
		return secure, nil
	}
	conn.Close()
	if ctx.Err() != nil {
		err = errNoHandshake
	}
	return nil, err
}
