package simredis

import (
	"maps"
	"slices"

	"github.com/redlockd/redlockd/redlock"
)

// hash is the value of a key that holds a hash.
type hash struct {
	Values map[string]string
	names  []string // sorted names of all fields; nil: not computed
}

func (h *hash) set(field, value string) {
	had := len(h.Values)
	if h.Values[field] = value; len(h.Values) > had {
		h.names = nil
	}
}

func (h *hash) delete(field string) {
	delete(h.Values, field)
	h.names = nil
}

// grow makes room for n fields.
func (h *hash) grow(n int) {
	if len(h.Values) < n/2 {
		values := make(map[string]string, n)
		maps.Copy(values, h.Values)
		h.Values = values
	}
}

// fields returns the sorted names of all fields. Callers must not change them.
func (h *hash) fields() []string {
	if h.names == nil {
		h.names = slices.Sorted(maps.Keys(h.Values))
	}
	return h.names
}

// clone returns a copy of the hash. h may be nil.
func (h *hash) clone() *hash {
	if h == nil {
		return nil
	}
	return &hash{maps.Clone(h.Values), h.names}
}

var noHash = &hash{names: []string{}} // must not be changed; fields would set nil names, for all simulations at once

// hash returns the hash at key, or noHash.
func (c call) hash(key string) (*hash, error) {
	e, ok := c.Lookup(key, c.now)
	switch {
	case !ok:
		return noHash, nil
	case e.Hash == nil:
		return nil, errWrongType
	}
	return e.Hash, nil
}

// hget returns a field of the hash at key. ok reports whether the field exists.
func (c call) hget(key, field string) (value string, ok bool, err error) {
	h, err := c.hash(key)
	if err != nil {
		return "", false, err
	}
	value, ok = h.Values[field]
	return value, ok, nil
}

// hashToWrite returns the hash at key, and creates it if needed. A caller that writes to it must
// call changed.
func (c call) hashToWrite(key string) (*hash, error) {
	h, err := c.hash(key)
	if err == nil && h == noHash {
		h = &hash{Values: map[string]string{}}
		c.Keys[key] = entry{Hash: h}
	}
	return h, err
}

func hgetCommand(c call) redlock.Reply {
	value, ok, err := c.hget(c.args[0], c.args[1])
	switch {
	case err != nil:
		return Refuse(err)
	case !ok:
		return Null()
	}
	return Text(value)
}

func hmgetCommand(c call) redlock.Reply {
	fields := c.args[1:]
	replies := make([]redlock.Reply, len(fields))
	for i, field := range fields {
		c.args = []string{c.args[0], field}
		if replies[i] = hgetCommand(c); replies[i].Err != nil {
			return replies[i]
		}
	}
	return redlock.Reply{Array: replies}
}

// hsetCommand replies with the number of new fields.
func hsetCommand(c call) redlock.Reply {
	key, pairs := c.args[0], c.args[1:]
	if len(pairs)%2 != 0 {
		return Failed("ERR wrong number of arguments for 'hset' command")
	}
	h, err := c.hashToWrite(key)
	if err != nil {
		return Refuse(err)
	}
	c.Changes++
	had := len(h.Values)
	h.grow(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		h.set(pairs[i], pairs[i+1])
	}
	return Number(int64(len(h.Values) - had))
}

// hdelCommand returns the number of deleted fields. A hash without fields does not exist.
func hdelCommand(c call) redlock.Reply {
	key, fields := c.args[0], c.args[1:]
	h, err := c.hash(key)
	if err != nil {
		return Refuse(err)
	}
	had := len(h.Values)
	for _, field := range fields {
		if _, ok := h.Values[field]; ok {
			h.delete(field)
		}
	}
	switch {
	case had > 0 && len(h.Values) == 0:
		c.drop(key)
	case had > len(h.Values):
		c.Changes++
	}
	return Number(int64(had - len(h.Values)))
}

// hgetallCommand returns the fields in the order of their names. The order of Redis is undefined.
func hgetallCommand(c call) redlock.Reply {
	h, err := c.hash(c.args[0])
	if err != nil {
		return Refuse(err)
	}
	reply := redlock.Reply{Array: make([]redlock.Reply, 0, 2*len(h.Values))}
	for _, field := range h.fields() {
		reply.Array = append(reply.Array, Text(field), Text(h.Values[field]))
	}
	return reply
}
