package session

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A client asks on many connections for the thousands of holders of a shared lock, and reads
// nothing. The daemon refuses some of these WHOs, as it does with LIST, so that it buffers no more
// for the client.
func TestManyHoldersUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const readers, connections, calls = 3000, 5, 20
		d := startSims(t, 1, nil)
		members := []string{"ZADD", d.Cfg.Quorum.KeyPrefix + "x\x00m"}
		for i := range readers {
			members = append(members, fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()), fmt.Sprintf("%022d host=%s pid=%d uid=1 user=u since=1", i, strings.Repeat("h", 64), i))
		}
		for _, command := range [][]string{members, {"SET", d.Cfg.Quorum.KeyPrefix + "x", "redlockd:shared", "PX", "3600000"}} {
			if reply := d.sims[0].Do(command...); reply.Err != nil {
				t.Fatal(reply.Err)
			}
		}
		var all []*wire
		for range connections {
			w := d.dial()
			all = append(all, w)
			for i := range calls {
				w.Send("@%d WHO x", i)
			}
		}
		d.dial().Until("LIST", `ERR LIMIT .*unread`)
		refused := 0
		for _, w := range all {
			for range calls {
				for holders := true; holders; {
					line, err := w.In.ReadSlice('\n')
					switch {
					case err != nil:
						t.Fatal(err)
					case bytes.Contains(line, []byte(" OK n=3000")):
						holders = false
					case bytes.Contains(line, []byte(" ERR LIMIT ")):
						holders = false
						refused++
					case !bytes.Contains(line, []byte(" - ")):
						t.Fatalf("WHO: %s", line)
					}
				}
			}
		}
		if refused == 0 {
			t.Errorf("%d answers of %d lines were buffered for a client that read none; want some refused", connections*calls, readers)
		}
	})
}
