package redis

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
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
	conn, _, err := o.connect(ctx)
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
	client, guarded, err := logIn(ctx, o, "redlockd")
	if err != nil {
		return nil, err
	}
	conn, err := guarded.detach()
	client.Close()
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &redisConn{conn: conn, connectTime: guarded.connectTime, in: newReplyReader(conn)}, nil
}

// logIn connects, and lets the driver log in on that connection. The driver retries nothing, caches
// nothing, and does not reconnect.
func logIn(ctx context.Context, o Options, clientName string) (rueidis.Client, *guardedConn, error) {
	option := rueidis.ClientOption{
		InitAddress:         []string{o.Address},
		Dialer:              net.Dialer{Timeout: max(time.Until(deadlineOf(ctx)), 1), KeepAlive: -1}, // -1: no pings by the driver
		SelectDB:            o.Database,
		Username:            o.Username,
		ClientName:          clientName,
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
	if o.Password != nil {
		var err error
		if option.Password, err = o.Password(); err != nil {
			return nil, nil, err
		}
	}
	conn, connectTime, err := o.connect(ctx)
	guarded := newGuardedConn(conn, connectTime, option.Password)
	if err != nil {
		return nil, nil, o.explain(ctx, err, guarded, false)
	}
	option.DialCtxFn = guarded.dialOnce
	stop := context.AfterFunc(ctx, func() { guarded.Close() }) // the driver's log-in uses no context
	client, err := rueidis.NewClient(option)
	if !stop() && err == nil { // ctx ended at the same moment, and the connection with it
		err = context.Cause(ctx)
	}
	if err != nil {
		guarded.Close() // first, or the driver would wait for a hung node
		if client != nil {
			client.Close()
		}
		return nil, nil, o.explain(ctx, err, guarded, !guarded.hasReceived.Load())
	}
	return client, guarded, nil
}

type connectLimit struct{}

// WithConnectLimit returns a context for Dial and Listen that also bounds how long the network may
// take to connect.
func WithConnectLimit(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, connectLimit{}, limit)
}

// Connecting returns the context in which the network must connect.
func Connecting(ctx context.Context) (context.Context, context.CancelFunc) {
	if limit, ok := ctx.Value(connectLimit{}).(time.Duration); ok {
		return context.WithTimeout(ctx, limit)
	}
	return context.WithCancel(ctx)
}

// connect connects, with TLS if it is configured. took is how long the network took to connect: about
// a round trip; 0: it did not.
func (o *Options) connect(ctx context.Context) (conn net.Conn, took time.Duration, err error) {
	ctx, cancel := context.WithDeadline(ctx, deadlineOf(ctx))
	defer cancel()
	dial := o.Dial
	if dial == nil {
		network, address := "tcp", o.Address
		if path, ok := strings.CutPrefix(address, "unix:"); ok {
			network, address = "unix", path
		}
		plain := net.Dialer{KeepAlive: 15 * time.Second}
		dial = func(ctx context.Context) (net.Conn, error) { return plain.DialContext(ctx, network, address) }
	}
	var config *tls.Config
	if o.Dial == nil && o.TLS != nil {
		if config, err = o.TLS(); err != nil {
			return nil, 0, err
		}
	}
	began := time.Now() // the files may be read slowly
	connecting, connected := Connecting(ctx)
	conn, err = dial(connecting)
	if connected(); err != nil {
		return nil, 0, err
	}
	took = max(time.Since(began), 1)
	switch {
	case o.Dial != nil:
		return conn, took, nil
	case config == nil:
		return withRawIO(conn), took, nil
	}
	secure := tls.Client(conn, config)
	if err = secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = errNoHandshake
		}
		return nil, took, err
	}
	return secure, took, nil
}
