package simredis

import (
	"slices"

	"github.com/redlockd/redlockd/redlock"
)

// subscriptions holds the connections that get the messages of each channel.
type subscriptions struct {
	subscribers map[string][]int64 // by channel: the ids of connections, in the order of subscribing
	Deliver     func(clientID int64, channel, message string)
	Published   func(channel, message string)
}

// subscribe executes SUBSCRIBE channel. (The reply to several channels is several replies.)
func subscribe(c call) redlock.Reply {
	if len(c.args) > 1 {
		return Refuse(simError("SUBSCRIBE to one channel at a time"))
	}
	channel := c.args[0]
	if !slices.Contains(c.subscribers[channel], c.client.Id) {
		c.subscribers[channel] = append(c.subscribers[channel], c.client.Id)
	}
	channels := int64(0)
	for _, ids := range c.subscribers {
		if slices.Contains(ids, c.client.Id) {
			channels++
		}
	}
	return List(Text("subscribe"), Text(channel), Number(channels))
}

// publish executes PUBLISH channel message. It returns how many connections get the message, and
// forgets subscribers that are gone.
func publish(c call) redlock.Reply {
	channel, message := c.args[0], c.args[1]
	if c.Published != nil {
		c.Published(channel, message)
	}
	ids := slices.DeleteFunc(c.subscribers[channel], func(id int64) bool { return c.byID(id) == nil })
	if len(ids) == 0 {
		delete(c.subscribers, channel)
		return Number(0)
	}
	c.subscribers[channel] = ids
	for _, id := range ids {
		c.Deliver(id, channel, message)
	}
	return Number(int64(len(ids)))
}

// byID returns a connection that the server knows, or nil.
func (s *State) byID(id int64) *Client {
	all := s.Clients()
	i := slices.IndexFunc(all, func(c *Client) bool { return c.Id == id })
	if i < 0 {
		return nil
	}
	return all[i]
}
