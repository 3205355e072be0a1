package access

import (
	"os/user"
	"strconv"
	"sync"
)

// UnknownUser is the uid of a peer that the kernel says nothing of.
const UnknownUser = -1

// users names users by their ids, and asks the system once for each.
type Users struct {
	mu    sync.Mutex // guards names
	names map[int]string
}

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
