package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// zookeeperClasses is where Debian's package has the server.
const zookeeperClasses = "/usr/share/java/zookeeper.jar"

// startZooKeeper starts servers with the settings of ZooKeeper's sample configuration and the heap
// of its start script. Each write is synced to the disk before its answer, which is the default. A
// network between them, if any, delays their messages to each other, too.
func startZooKeeper(ctx context.Context, dir string, delays delays) (_ *cluster, err error) {
	var own [3][]string // clients, followers, elections
	for i := range own {
		if own[i], err = freeAddresses(serverCount); err != nil {
			return nil, err
		}
	}
	c := &cluster{leader: zookeeperLeader(own[0])}
	defer func() {
		if err != nil {
			c.kill()
		}
	}()
	var seen [3][]string
	for i := range own {
		if seen[i], err = c.forward(dir, fmt.Sprintf("zookeeper-%d", i), delays, own[i]); err != nil {
			return nil, err
		}
	}
	c.addresses = seen[0]
	for i := range serverCount {
		config, err := zookeeperConfig(dir, i, own, seen)
		if err != nil {
			return nil, err
		}
		s, err := startChild(dir, fmt.Sprintf("zookeeper-s%d", i), "java", "-Xmx1000m", "-cp", zookeeperClasses,
			"org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, s)
	}
	for i, s := range c.servers {
		if err := s.ready(startLimit, func() error { _, err := zookeeperMode(ctx, own[0][i]); return err }); err != nil {
			return nil, err
		}
	}
	_, err = c.leader(ctx)
	return c, err
}

// zookeeperConfig writes the configuration of server i. It listens on its own addresses, and sees
// the others through the network.
func zookeeperConfig(dir string, i int, own, seen [3][]string) (string, error) {
	data := filepath.Join(dir, fmt.Sprintf("zookeeper-data-s%d", i))
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "tickTime=2000\ninitLimit=10\nsyncLimit=5\nadmin.enableServer=false\ndataDir=%s\n", data)
	fmt.Fprintf(&b, "clientPort=%s\nclientPortAddress=127.0.0.1\n", port(own[0][i]))
	for other := range serverCount {
		at := seen
		if other == i {
			at = own
		}
		fmt.Fprintf(&b, "server.%d=%s:%s\n", other+1, at[1][other], port(at[2][other]))
	}
	config := data + ".cfg"
	return config, errors.Join(os.WriteFile(filepath.Join(data, "myid"), []byte(fmt.Sprint(i+1)), 0o600), os.WriteFile(config, []byte(b.String()), 0o600))
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// zookeeperLeader returns the number of the server that leads.
func zookeeperLeader(addresses []string) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		for i, address := range addresses {
			if mode, err := zookeeperMode(ctx, address); err != nil || mode == "leader" {
				return i, err
			}
		}
		return 0, errors.New("no ZooKeeper server leads")
	}
}

// zookeeperMode returns "leader" or "follower", and an error while the server serves nobody.
func zookeeperMode(ctx context.Context, address string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	_, rest, ok := strings.Cut(string(text), "Mode: ")
	if err == nil && !ok {
		err = fmt.Errorf("srvr: %.100q", text)
	}
	mode, _, _ := strings.Cut(rest, "\n")
	return mode, err
}

func zookeeperMissing() string {
	if _, err := exec.LookPath("java"); err != nil {
		return "java is not in the PATH"
	}
	if _, err := os.Stat(zookeeperClasses); err != nil {
		return zookeeperClasses + " is missing (Debian: apt-get install zookeeper)"
	}
	return ""
}

// zookeeperContender is one session of ZooKeeper, which all workers of a process share.
type zookeeperContender struct{ conn *zk.Conn }

func zookeeperAt(ctx context.Context, addresses []string) (contender, error) {
	conn, events, err := zk.Connect(addresses, pairTTL, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	limit := time.After(startLimit)
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return &zookeeperContender{conn}, nil
			}
		case <-limit:
			conn.Close()
			return nil, fmt.Errorf("no session within %v", startLimit)
		case <-ctx.Done():
			conn.Close()
			return nil, ctx.Err()
		}
	}
}

// quiet logs nothing: a killed server is part of the measurement.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

func (c *zookeeperContender) locker(int) locker            { return &zookeeperLocker{conn: c.conn} }
func (c *zookeeperContender) settle(context.Context) error { return nil } // each call waits for its answer
func (c *zookeeperContender) close()                       { c.conn.Close() }
