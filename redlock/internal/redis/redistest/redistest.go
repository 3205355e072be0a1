package redistest

import (
	"io"
	"net"
	"strings"
	"time"
)

// Samples are messages as Redis sends them, and some invalid ones. The fuzz test of answers has
// more of them.
var Samples = []struct {
	Text  string
	Whole int64  // complete answers
	Fault string // part of the error
}{
	{"+OK\r\n:1\r\n:-1\r\n$3\r\na\r\n\r\n$0\r\n\r\n$-1\r\n*-1\r\n_\r\n-ERR x\r\n*0\r\n%0\r\n", 11, ""},
	{"*2\r\n*1\r\n$1\r\nx\r\n%1\r\n+a\r\n:1\r\n=7\r\ntxt:abc\r\n", 2, ""},
	{">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n:1\r\n>1\r\n+tracking-redir-broken\r\n>0\r\n", 1, "a push about"},
	{">3\r\n+message\r\n+c\r\n+m\r\n", 0, ""},
	{">3\r\n+subscribe\r\n+c\r\n:1\r\n", 1, ""},
	{">2\r\n+invalidates\r\n_\r\n", 0, `a push about "invalidates"`},
	{">2\r\n*1\r\n+invalidate\r\n:1\r\n", 0, `a push about ""`},
	{">2\r\n$40\r\n" + strings.Repeat("x", 40) + "\r\n_\r\n", 0, "a push about"},
	{":9223372036854775807\r\n", 1, ""},
	{":9223372036854775808\r\n", 0, "no number"},
	{":1-\r\n", 0, "no number"},
	{":\r\n", 0, "no number"},
	{":-\r\n", 0, "no number"},
	{"*131073\r\n", 0, "more than 131072 parts"},
	{"*1\r\n*131072\r\n", 0, "more than 131072 parts"},
	{"%65537\r\n", 0, "more than 131072 parts"},
	{"$8388609\r\n", 0, "a string of 8388609 bytes"},
	{"$8388608\r\n", 0, ""},
	{strings.Repeat("*1\r\n", 8) + ":1\r\n", 1, ""},
	{strings.Repeat("*1\r\n", 9), 0, "8 deep"},
	{"+" + strings.Repeat("x", 64<<10) + "\r\n", 1, ""},
	{"+" + strings.Repeat("x", 64<<10+1), 0, "a line of more than"},
	{"$1\r\nxx\r\n", 0, "CR and LF"},
	{"+x\n", 0, "CR and LF"},
	{"+x\r\r\n", 0, "CR and LF"},
	{"_x\r\n", 0, "null with"},
	{"*1\r\n>0\r\n", 0, "a push within"},
	{"$-2\r\n", 0, "below 0"},
	{"%-1\r\n", 0, "below 0"},
	{">-1\r\n", 0, "below 0"},
	{"?", 0, "begins with"},
}

// Scripted is a connection to a node whose answers are known.
type Scripted struct{ io.Reader }

func (Scripted) Write(b []byte) (int, error)      { return len(b), nil }
func (Scripted) Close() error                     { return nil }
func (Scripted) LocalAddr() net.Addr              { return nil }
func (Scripted) RemoteAddr() net.Addr             { return nil }
func (Scripted) SetDeadline(time.Time) error      { return nil }
func (Scripted) SetReadDeadline(time.Time) error  { return nil }
func (Scripted) SetWriteDeadline(time.Time) error { return nil }
