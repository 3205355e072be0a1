package redlocktest

import (
	"maps"
	"slices"

	"github.com/redlockd/redlockd/redlock"
)

// hash returns the hash at key; nil where there is none.
func (c call) hash(key string) (map[string]string, error) {
	e, ok := c.lookup(key, c.now)
	if ok && e.hash == nil {
		return nil, errWrongType
	}
	return e.hash, nil
}

// hget returns a field of the hash at key; ok tells that there is one.
func (c call) hget(key, field string) (value string, ok bool, err error) {
	hash, err := c.hash(key)
	value, ok = hash[field]
	return value, ok, err
}

// hset sets fields of the hash at key to values, given in turn. It fails as
// Redis does where the key is something else or the node is a replica.
func (c call) hset(key string, pairs ...string) error {
	if err := c.mayWrite(); err != nil {
		return err
	}
	hash, err := c.hash(key)
	if err != nil {
		return err
	}
	if hash == nil {
		hash = map[string]string{}
		c.keys[key] = entry{hash: hash}
	}
	for i := 0; i < len(pairs); i += 2 {
		hash[pairs[i]] = pairs[i+1]
	}
	return nil
}

func hgetCommand(c call) redlock.Reply {
	value, ok, err := c.hget(c.args[0], c.args[1])
	switch {
	case err != nil:
		return refuse(err)
	case !ok:
		return null()
	}
	return text(value)
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

// hsetCommand answers with how many of the fields are new.
func hsetCommand(c call) redlock.Reply {
	key, pairs := c.args[0], c.args[1:]
	if len(pairs)%2 != 0 {
		return failed("ERR wrong number of arguments for 'hset' command")
	}
	before, _ := c.hash(key)
	had := len(before)
	if err := c.hset(key, pairs...); err != nil {
		return refuse(err)
	}
	after, _ := c.hash(key)
	return number(int64(len(after) - had))
}

// hdelCommand answers with how many fields there were to delete. A hash without
// fields is no key.
func hdelCommand(c call) redlock.Reply {
	key, fields := c.args[0], c.args[1:]
	hash, err := c.hash(key)
	if err != nil {
		return refuse(err)
	}
	had := len(hash)
	for _, field := range fields {
		delete(hash, field)
	}
	if had > 0 && len(hash) == 0 {
		delete(c.keys, key)
	}
	return number(int64(had - len(hash)))
}

// hgetallCommand answers in the order of the fields' names; Redis has another.
func hgetallCommand(c call) redlock.Reply {
	hash, err := c.hash(c.args[0])
	if err != nil {
		return refuse(err)
	}
	reply := redlock.Reply{Array: make([]redlock.Reply, 0, 2*len(hash))}
	for _, field := range slices.Sorted(maps.Keys(hash)) {
		reply.Array = append(reply.Array, text(field), text(hash[field]))
	}
	return reply
}
