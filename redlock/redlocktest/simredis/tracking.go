package simredis

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// tracking holds the connections to notify when a key changes. Each read is notified of once.
type tracking struct {
	Readers map[string][]int64               // by key: the ids of connections that have read it
	current *Client                          // the client whose command runs; nil if none does
	Clients func() []*Client                 // in the order of dialling
	Notify  func(clientID int64, key string) // "" for all keys
}

// trackingMode holds the options of CLIENT TRACKING ON REDIRECT id OPTIN.
type trackingMode struct {
	redirect int64
	noLoop   bool
}

// clientTracking executes CLIENT TRACKING OFF, and ON with REDIRECT and OPTIN.
func clientTracking(c call) redlock.Reply {
	mode, optIn := trackingMode{}, false
	for options := c.args[1:]; len(options) > 0; options = options[1:] {
		switch {
		case strings.EqualFold(options[0], "OPTIN"):
			optIn = true
		case strings.EqualFold(options[0], "NOLOOP"):
			mode.noLoop = true
		case strings.EqualFold(options[0], "REDIRECT") && len(options) > 1:
			id, err := strconv.ParseInt(options[1], 10, 64)
			if err != nil {
				return Refuse(errNotNumber)
			}
			if c.byID(id) == nil {
				return Failed("ERR The client ID you want redirect to does not exist")
			}
			mode.redirect, options = id, options[1:]
		default:
			return Refuse(errSyntax)
		}
	}
	return c.setTracking(mode, optIn)
}

func (c call) setTracking(mode trackingMode, optIn bool) redlock.Reply {
	switch {
	case strings.EqualFold(c.args[0], "OFF"):
		c.client.tracks = nil
		return Text("OK")
	case !strings.EqualFold(c.args[0], "ON"):
		return Refuse(errSyntax)
	case !optIn || mode.redirect == 0:
		return Refuse(simError("CLIENT TRACKING ON without REDIRECT and OPTIN"))
	}
	c.client.tracks = &mode
	return Text("OK")
}

// clientCaching executes CLIENT CACHING YES.
func clientCaching(c call) redlock.Reply {
	switch {
	case c.client.tracks == nil:
		return Failed("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
	case strings.EqualFold(c.args[0], "NO"):
		return Failed("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
	case !strings.EqualFold(c.args[0], "YES"):
		return Refuse(errSyntax)
	}
	c.client.Caching = true
	return Text("OK")
}

// caches reports whether the server tracks the keys that the client's next command reads. As in
// Redis, CLIENT CACHING YES applies to the next command that is not a CLIENT command.
func (c *Client) caches(next *command) bool {
	if !c.Caching {
		return false
	}
	c.Caching = next != nil && strings.HasPrefix(next.name, "CLIENT ")
	return c.tracks != nil
}

// remember records the keys that a client has read, and returns the reply.
func (s *State) remember(c *Client, known *command, command redlock.Command, reply redlock.Reply) redlock.Reply {
	var keys []string
	switch known.name {
	case "GET", "PTTL", "HGET", "HMGET", "HGETALL":
		keys = command[1:2]
	case "MGET", "EXISTS":
		keys = command[1:]
	case "EVALSHA":
		return Refuse(simError("what scripts read after CLIENT CACHING YES is not known"))
	}
	for _, key := range keys {
		if !slices.Contains(s.Readers[key], c.Id) {
			s.Readers[key] = append(s.Readers[key], c.Id)
		}
	}
	return reply
}

// changed notifies the clients that have read a changed key. With NOLOOP it does not notify the
// client that changed it. After either, a client must read the key again to be notified again.
func (s *State) changed(key string) {
	if len(s.Readers) == 0 {
		return
	}
	ids := s.Readers[key]
	delete(s.Readers, key)
	for _, id := range ids {
		c := s.byID(id)
		if c != nil && c.tracks != nil && !(c.tracks.noLoop && c == s.current) {
			s.Notify(c.tracks.redirect, key)
		}
	}
}

// flushed notifies all tracking clients, whatever they have read, that all keys are gone.
func (s *State) flushed() {
	if s.Clients == nil { // NewState has not finished
		return
	}
	clear(s.Readers)
	for _, c := range s.Clients() {
		if c.tracks != nil {
			s.Notify(c.tracks.redirect, AllKeys)
		}
	}
}

// AllKeys is sent instead of a key if all keys are gone.
const AllKeys = ""

func (s *State) byID(id int64) *Client {
	all := s.Clients()
	i := slices.IndexFunc(all, func(c *Client) bool { return c.Id == id })
	if i < 0 {
		return nil
	}
	return all[i]
}

// NextExpiry returns when the first key that a client has read expires, in milliseconds since 1970,
// or 0.
func (s *State) NextExpiry() int64 {
	first := int64(0)
	for key := range s.Readers {
		if at := s.Keys[key].expiry; at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}
