package redis

import "context"

// Conn is one physical connection to one node. Commands reach the node in the order in which they
// were passed to it: a release can never overtake the acquire that it cleans up after.
//
// A Conn is used by one goroutine at a time, with two exceptions: Receive may run beside Send,
// and Close beside all methods.
//
// An error of Do, Send or Receive means that the connection is broken or that ctx ended. (While a
// call waits, it only notices the deadline of ctx.) Then the state of each command without a received
// reply is unknown, and the Conn must only be closed. If
// the node itself refuses a command, that is no error of the Conn, but the Err of its Reply.
type Conn interface {
	// Do sends the commands as one group and waits for all the replies, which it stores in
	// replies (len(replies) == len(group)). It may reuse the memory of the Arrays there, but not
	// of nested Arrays. No group may be in progress.
	Do(ctx context.Context, group []Command, replies []Reply) error

	// Send sends the commands as one group, after all groups in progress, and does not wait for
	// the replies.
	Send(ctx context.Context, group []Command) error

	// Receive waits for the replies to the oldest group that was sent and not received. It stores
	// them as Do does.
	Receive(ctx context.Context, replies []Reply) error

	// Close ends the connection without waiting for the node. Do, Send and Receive then fail,
	// including calls in progress.
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

// ServerError is an error that a node answered, in the words of Redis. Its first word is the
// kind: "NOSCRIPT No matching script."
type ServerError string

func (e ServerError) Error() string { return string(e) }

// Node is one of the N independent Redis masters: its name in errors and in STATUS, and how to
// connect to it.
type Node struct {
	Name    string // "a"
	Address string // for messages: "10.0.0.1:6379", "unix:/run/redis/b.sock"

	// Database is the number of the database.
	Database int

	// User is the name with which Dial logs in; "": the user default.
	User string

	// Embedded: a node within this process, which has no CLIENT ID, CLIENT KILL and INFO, and no
	// network on which bytes could be in transit.
	Embedded bool

	// Durable: the operator declares that no restart loses a write (an append-only file with
	// appendfsync always, which is verified). Then a restart alone is no reason for a quarantine.
	Durable bool

	// Joining and Leaving are for a change of the nodes: a joining node is not in the old list, and a
	// leaving node is not in the new one.
	Joining, Leaving bool

	// Dial makes a connection that is ready for commands (authenticated). It returns by the time
	// ctx ends.
	Dial func(ctx context.Context) (Conn, error)

	// Listen makes a second connection, and subscribes to a channel on it. Listen calls heard with
	// each message. heard must not block. Listen returns by the time ctx ends. Nil: the node
	// cannot send messages.
	Listen func(ctx context.Context, channel string, heard func(message string)) (Listener, error)
}

// Listener is a connection on which no commands are sent.
type Listener interface {
	Done() <-chan struct{} // closed when it has broken
	Close()                // ends it without waiting for the node
}
