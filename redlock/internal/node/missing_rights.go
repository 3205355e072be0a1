package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// A node that refuses a command to this user names only that one. So after such an answer the lane
// tries all commands that it needs, in one round trip, and names all that are refused. Each of them
// changes nothing: its key does not exist, or its arguments are wrong, and Redis looks at the rights
// before. This needs no right itself, and works with every version and with managed servers, which do
// not offer ACL.

// RightsError means that the user of redlockd lacks rights on the node.
type RightsError struct {
	User    string
	Missing []string // as in an ACL: "+set", "~redlock:*"
	Unknown []string // commands that the node does not know (rename-command)
	Fix     string   // gives all rights that are needed
}

func (e *RightsError) Error() string {
	var parts []string
	if e.Missing != nil {
		parts = append(parts, fmt.Sprintf("its user %q lacks %s; fix: %s", e.User, strings.Join(e.Missing, " "), e.Fix))
	}
	if e.Unknown != nil {
		parts = append(parts, fmt.Sprintf("it does not know %s; fix: remove rename-command from its redis.conf, or use a server that has them", strings.Join(e.Unknown, ", ")))
	}
	return strings.Join(parts, "; ")
}

// neededRight is a command as an ACL names it, and how it is tried.
type neededRight struct{ right, try string }

// neededRights are the commands that locks need, with arguments that change nothing. KEY and NODE
// stand for a key beside those of locks and for the node's own hash. Those without arguments are not
// tried: every user may log in, and SUBSCRIBE would end the use of the connection.
var neededRights = []neededRight{
	{"hello", ""}, {"auth", ""}, {"ping", "PING"}, {"info", "INFO server"}, {"time", "TIME"},
	{"client|id", "CLIENT ID"}, {"client|kill", "CLIENT KILL ID " + strconv.FormatInt(noConnection, 10)},
	{"script|load", "SCRIPT LOAD return"}, {"evalsha", "EVALSHA 0000000000000000000000000000000000000000 0"},
	{"set", "SET KEY 1 XX PX 1"}, {"get", "GET KEY"}, {"del", "DEL KEY"}, {"pttl", "PTTL KEY"}, {"exists", "EXISTS KEY"},
	{"pexpire", "PEXPIRE KEY 1"}, {"pexpireat", "PEXPIREAT KEY 1"},
	{"hget", "HGET NODE epoch"}, {"hmget", "HMGET NODE epoch"}, {"hset", "HSET KEY epoch 1 epoch"}, {"hgetall", "HGETALL KEY"},
	{"zadd", "ZADD KEY XX 1 1"}, {"zrange", "ZRANGE KEY 0 0"}, {"zrem", "ZREM KEY 1"}, {"zscore", "ZSCORE KEY 1"}, {"zcount", "ZCOUNT KEY 0 0"}, {"zrank", "ZRANK KEY 1"},
	{"scan", ""}, {"publish", "PUBLISH redlockd:host: 1"}, {"subscribe", ""},
}

// acl returns all rights that redlockd needs on the node, as words of an ACL.
func (l *Lane) acl() string {
	words := []string{"resetkeys", "~" + l.prefix + "*", "~" + ownKeys + "*", "resetchannels", "&" + ownKeys + "*"}
	if l.prefix == "" {
		words = []string{"resetkeys", "~*", "resetchannels", "&" + ownKeys + "*"}
	}
	for _, needed := range neededRights {
		words = append(words, "+"+needed.right)
	}
	if l.node.Database != 0 {
		words = append(words, "+select")
	}
	if l.node.Durable {
		words = append(words, "+config|get", "+acl|dryrun")
	}
	return strings.Join(words, " ")
}

// user returns the name of the user as which redlockd logs in.
func (l *Lane) user() string { return cmp.Or(l.node.User, "default") }

// rightsFix returns a command that gives the user the rights.
func (l *Lane) rightsFix(rights []string) string {
	if slices.Contains(rights, "+publish") && !slices.Contains(rights, "+subscribe") { // it was not tried
		rights = append(slices.Clone(rights), "+subscribe")
	}
	return fmt.Sprintf("ACL SETUSER %s %s (and the same in its aclfile; on a managed server, in the access string of this user)", l.user(), strings.Join(rights, " "))
}

// ownKeys begins the keys that redlockd has beside those of locks, and the names of its channels.
const ownKeys = "redlockd:"

// tryRights tries all commands that the lane needs. It returns a *RightsError if the node refuses some
// of them to this user, or does not know them; nil: there is no such command.
func (l *Lane) tryRights(ctx context.Context, conn redis.Conn) (*RightsError, error) {
	var tried []neededRight
	keys := strings.NewReplacer("KEY", l.prefix+probeSuffix, "NODE", script.NodeKey)
	l.trip.commands = l.trip.commands[:0]
	for _, needed := range neededRights {
		if needed.try == "" {
			continue
		}
		words := strings.Fields(needed.try)
		for i := range words[1:] {
			words[1+i] = keys.Replace(words[1+i])
		}
		l.appendCommand(words...)
		tried = append(tried, needed)
	}
	if err := l.roundTrip(ctx, conn); err != nil {
		return nil, err
	}
	e, mayUseKeys := &RightsError{User: l.user()}, false
	for i, needed := range tried {
		right, refused := needed.right, refusalOf(l.trip.replies[i].Err)
		mayUseKeys = mayUseKeys || refused == "" && (strings.Contains(needed.try, "KEY") || strings.Contains(needed.try, "NODE"))
		switch refused {
		case "command":
			e.Missing = append(e.Missing, "+"+right)
		case "unknown":
			e.Unknown = append(e.Unknown, strings.ToUpper(strings.ReplaceAll(right, "|", " ")))
		case "key", "channel":
			if pattern := l.patternOf(right); !slices.Contains(e.Missing, pattern) {
				e.Missing = append(e.Missing, pattern)
			}
		}
	}
	if e.Missing == nil && e.Unknown == nil {
		return nil, nil
	}
	if mayUseKeys || slices.ContainsFunc(e.Missing, func(word string) bool { return word[0] == '~' }) {
		e.Fix = l.rightsFix(e.Missing)
	} else { // which keys it may use is unknown, and it uses none
		e.Fix = l.rightsFix(strings.Fields(l.acl()))
	}
	return e, nil
}

// patternOf returns the pattern of the keys or channels with which a command is tried.
func (l *Lane) patternOf(right string) string {
	switch right {
	case "publish":
		return "&" + ownKeys + "*"
	case "hget", "hmget":
		return "~" + ownKeys + "*"
	}
	return "~" + l.prefix + "*"
}

// refusalOf returns what the node refuses to this user: a "command", a "key" or a "channel"; "unknown":
// it does not know the command; "": it refuses nothing.
func refusalOf(err error) string {
	var answer redis.ServerError
	if !errors.As(err, &answer) {
		return ""
	}
	text := string(answer)
	switch {
	case strings.HasPrefix(text, "ERR unknown command"):
		return "unknown"
	case !strings.HasPrefix(text, "NOPERM "):
		return ""
	case strings.Contains(text, "channel"):
		return "channel"
	case strings.Contains(text, "key"):
		return "key"
	}
	return "command"
}

// explainRefusal names all rights that this user lacks, if err means that it lacks one.
func (l *Lane) explainRefusal(ctx context.Context, conn redis.Conn, err error) error {
	if l.node.Embedded || !IsDenied(err) && refusalOf(err) == "" {
		return err
	}
	missing, failure := l.tryRights(ctx, conn)
	if failure != nil || missing == nil {
		return err
	}
	return missing
}
