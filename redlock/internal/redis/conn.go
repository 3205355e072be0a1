package redis

import "context"

// Conn is one physical connection to one node. The commands given to it reach
// the node in the order in which they were given: a release can never overtake
// the acquire that it cleans up after.
//
// A Conn is used by one goroutine at a time, with two exceptions: Receive may run
// beside Send, and Close beside everything.
//
// An error of Do, Send or Receive means that the connection is broken or that ctx ended.
// Then nothing is known of any command whose reply was not received, and the Conn must
// only be closed. A command that the node itself refuses is no error of the Conn but the
// Err of its Reply.
type Conn interface {
	// Do sends the commands as one group and waits for all the replies, which
	// it stores in replies (len(replies) == len(group)). It may use the room of
	// the Arrays there, but not of nested Arrays. No group may be under way.
	Do(ctx context.Context, group []Command, replies []Reply) error

	// Send sends the commands as one group, behind all groups under way, and does not
	// wait for the replies. The group must stay unchanged until Receive has returned.
	Send(ctx context.Context, group []Command) error

	// Receive waits for the replies to the oldest group that was sent and not received.
	// It stores them as Do does.
	Receive(ctx context.Context, replies []Reply) error

	// Close ends the connection without waiting for the node. Do, Send and Receive
	// fail then, also those that run.
	Close()
}

// Command is one Redis command: its name and its arguments.
type Command []string

// Reply is a node's answer to one command.
type Reply struct {
	Err   error   // a ServerError: the node refused this command
	Nil   bool    // the null reply
	Int   int64   // of an integer reply
	Str   string  // of a string reply
	Array []Reply // of an array reply
}

// ServerError is an error that a node answered, as Redis words it; its first
// word is the kind: "NOSCRIPT No matching script."
type ServerError string

func (e ServerError) Error() string { return string(e) }

// Node is one of the N independent Redis masters: what it is called in errors
// and in STATUS, and how a connection to it is made.
type Node struct {
	Name    string // "a"
	Address string // for people: "10.0.0.1:6379", "unix:/run/redis/b.sock"

	// Embedded: a stand-in within this process, which knows no CLIENT ID, CLIENT
	// KILL and INFO, and has no network on which bytes could be under way.
	Embedded bool

	// Durable: the operator says that no restart loses a write (an
	// append-only file with appendfsync always, which is verified). Then a
	// restart alone is no reason for a quarantine.
	Durable bool

	// Dial makes a connection that is ready for commands (authenticated). It
	// returns by the time ctx ends.
	Dial func(ctx context.Context) (Conn, error)

	// Listen makes a second connection (CLIENT TRACKING with REDIRECT). On it the node
	// reports changes of keys that a Conn read while it was tracked. It calls heard with
	// these keys, or with nil if all may have changed. heard must not block. Listen returns
	// by the time ctx ends. Nil: the node cannot report changes.
	Listen func(ctx context.Context, heard func(keys []string)) (Listener, error)
}

// Listener is a connection on which nothing is asked.
type Listener interface {
	ID() int64             // CLIENT ID: what a Conn's tracking is redirected to
	Done() <-chan struct{} // closed when it has broken
	Close()                // ends it without waiting for the node
}
