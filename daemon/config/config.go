package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
)

// maxFileSize bounds a config file; the largest sensible one is a hundredth of it.
const maxFileSize = 256 << 10

// readTimeout bounds how long a pipe may take to deliver one.
const readTimeout = 10 * time.Second

// Config is everything that redlockd.hcl says, checked and with the defaults filled in.
// It holds no secrets: passwords and keys stay in their files until they are needed.
type Config struct {
	Path    string // the file it was read from; "" for Dev
	Quorum  Quorum
	Lease   Lease
	Socket  Socket
	Access  *Access // nil: everyone who can open the socket may lock anything
	Limits  Limits
	Log     Log
	Metrics *Metrics // nil: off
	Doctor  Doctor

	// Warnings are what is allowed but unwise, each with file:line. For the log.
	Warnings []string
}

// Quorum says which nodes vote, and what is the same for all of them.
type Quorum struct {
	KeyPrefix   string        // before every lock's name on the nodes; "" shares locks with clients that use bare names
	MaxTTL      time.Duration // longest lease anyone on these nodes may ask for; also the quarantine
	NodeTimeout time.Duration // a node that has not answered for so long has failed this ballot
	Nodes       []Node        // in the order of the file; at least one
}

// Needed is how many of the nodes are a quorum.
func (c *Quorum) Needed() int { return len(c.Nodes)/2 + 1 }

// Node is one Redis master.
type Node struct {
	Name         string // unique, up to 32 of [A-Za-z0-9._-]
	Address      string // "host:port", "[v6]:port" or "unix:/absolute/path", unique
	Username     string // "": the default user
	PasswordFile string // where to read the password, already resolved; "": none is sent
	Durable      bool   // its votes outlive a restart (AOF, appendfsync always)
	TLS          *TLS
	Pos          string // "file:line" of the node's block; "" where no file was read
}

// TLS says how to speak TLS to a node. File names are already resolved.
type TLS struct {
	CAFile     string // "": the system's roots
	CertFile   string // with KeyFile; "": no client certificate
	KeyFile    string
	ServerName string // "": the host of the node's address
}

// Lease holds the defaults of a LOCK.
type Lease struct {
	TTL     time.Duration // default of ttl=
	MaxHold time.Duration // default and ceiling of max=; 0: no bound
	Linger  time.Duration // default of linger=
	Retain  time.Duration // default of retain=
}

// MaxRetain is the longest retain=.
const MaxRetain = time.Second

// Socket is where clients connect.
type Socket struct {
	Path  string
	Mode  fs.FileMode // permission bits
	Group string      // name or number; "": the daemon's own group
}

// Access lists who may do what. What no rule allows is denied.
type Access struct {
	Rules []Rule
}

// String summarizes the rules for the log.
func (c *Access) String() string {
	if c == nil {
		return "everything, to everybody who can connect"
	}
	return fmt.Sprintf("by %d rules", len(c.Rules))
}

// Rule lets some users do something with some locks.
type Rule struct {
	Name   string
	Users  []string // names or numbers
	Groups []string
	Locks  []string // names, with * for any run of characters without /, and ** for any
	Allow  []string // of "lock", "inspect", "admin"

	UIDs, GIDs []int // of Users and Groups, when the config was read
}

// What an access rule can allow. None includes another.
const (
	RightLock    = "lock"    // LOCK and TRY
	RightInspect = "inspect" // WHO, and what LIST shows and STATUS counts
	RightAdmin   = "admin"   // FORCE; with locks = ["**"] also ADMIT
)

// AllRights are the words of allow.
var AllRights = []string{RightLock, RightInspect, RightAdmin}

// Limits bounds what clients can use up. 0 is no bound, in each of them.
type Limits struct {
	Connections        int // open at once
	ConnectionsPerUser int
	LeasesPerUser      int
	WaitersPerUser     int
	RequestsPerSecond  int // of one connection
}

// Doctor says what redlock doctor does on this host.
type Doctor struct {
	Ignore []string // the checks whose warnings the operator accepts
}

// DoctorChecks are the checks of redlock doctor.
var DoctorChecks = []string{
	"socket", "daemon", "version", "table", "quorum", "node-count", "node", "persistence", "same-host", "latency", "wake-ups",
	"max-ttl", "lease-time", "clock-jumps", "withdrawals", "fencing", "restarts", "clock",
}

// Log says what is logged, and how.
type Log struct {
	Level  hclog.Level
	Format logging.Format
	Grants bool // a line for each grant and release, too
}

// Metrics is where Prometheus scrapes.
type Metrics struct {
	Address string // "host:port"
	Page    bool   // the status page at /
	Names   bool   // the page shows the locks' names and holders
}

// Load reads and checks the config file at path, and the files that it
// names. A file that cannot be read is the operating system's error; anything
// wrong inside is a *Error with every fault at once, in file order.
// Relative names of password and TLS files are looked for in
// $CREDENTIALS_DIRECTORY, or beside the config file where that is not set.
func Load(path string) (*Config, error) {
	source, err := readConfigFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return Parse(source, path)
}

// readConfigFile never waits for the other end of a pipe. A pipe that can be read at the
// start (-config <(…)) is empty at SIGHUP, and the daemon would not react to signals.
func readConfigFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	file.SetReadDeadline(time.Now().Add(readTimeout)) // an error here is that it is no pipe
	source, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err == nil && len(source) > maxFileSize {
		err = fmt.Errorf("%s: larger than %d bytes: not a config file", path, maxFileSize)
	}
	return source, err
}

// Parse is Load for a source that is in memory; path names it in
// faults and is where relative file names may start from.
func Parse(source []byte, path string) (*Config, error) {
	r := newReader(path)
	if err := checkNesting(source, path); err != nil {
		return nil, err
	}
	file, diags := hclsyntax.ParseConfig(source, path, hcl.InitialPos)
	r.syntaxFaults(diags)

	cfg := r.readConfig(file.Body.(*hclsyntax.Body))
	if len(r.syntax) > 0 {
		return nil, r.failure() // what seems missing may stand in the part that was not understood
	}
	r.checkConfig(cfg)
	if len(r.faults) > 0 {
		return nil, r.failure()
	}
	return cfg, nil
}

// credentialsDirectory is where relative names of secrets are looked for:
// systemd's LoadCredential= directory, or else beside the config file.
func credentialsDirectory(path string) string {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		return dir
	}
	return filepath.Dir(path)
}

// DefaultSocketPath is where clients look for the daemon.
const DefaultSocketPath = "/run/redlockd/redlockd.sock"

// defaultTTL is lease.ttl if the file does not set it and max_ttl is not shorter.
const defaultTTL = 10 * time.Second

// defaults returns the config of an empty file, without the nodes, which have no
// default, and without lease.ttl, which depends on max_ttl.
func defaults() *Config {
	return &Config{
		Quorum: Quorum{
			KeyPrefix:   redlock.DefaultPrefix,
			MaxTTL:      30 * time.Second,
			NodeTimeout: 50 * time.Millisecond,
		},
		Socket: Socket{Path: DefaultSocketPath, Mode: 0o660},
		Limits: Limits{
			Connections:        10000,
			ConnectionsPerUser: 1000,
			LeasesPerUser:      10000,
			WaitersPerUser:     10000,
		},
		Log: Log{Level: hclog.Info, Format: logging.Text},
	}
}

// Dev returns the config of redlockd -dev: five nodes a to e that the daemon embeds
// (their address is the word "embedded"; it dials nothing), and a socket in the working
// directory.
func Dev() *Config {
	cfg := defaults()
	cfg.Lease.TTL = defaultTTL
	cfg.Quorum.NodeTimeout = 500 * time.Millisecond // embedded nodes are slow when busy, and never hang
	cfg.Socket = Socket{Path: "./redlockd.sock", Mode: 0o600}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		cfg.Quorum.Nodes = append(cfg.Quorum.Nodes, Node{Name: name, Address: "embedded"})
	}
	return cfg
}
