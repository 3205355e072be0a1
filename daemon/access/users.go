package access

import (
	"os/user"
	"strconv"
	"sync"
)

// UnknownUser is the uid of a client that the kernel reports nothing about.
const UnknownUser = -1

// Users caches the names of user ids: it looks each up once.
type Users struct {
	mu    sync.Mutex // guards names; nothing is locked inside it
	names map[int]string
}

// Name returns the name of a user, its number if it has none, or "?".
func (u *Users) Name(uid int) string {
	if uid == UnknownUser {
		return "?"
	}
	u.mu.Lock()
	name, known := u.names[uid]
	u.mu.Unlock()
	if known {
		return name
	}
	name = strconv.Itoa(uid)
	if found, err := user.LookupId(name); err == nil {
		name = found.Username
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.names == nil {
		u.names = map[int]string{}
	}
	u.names[uid] = name
	return name
}
