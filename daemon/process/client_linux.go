package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ClientOf returns the client of a connection that the process with that id made at the BootTime
// connected. It returns the zero Client if the kernel does not show all of it: that the client has
// ended could then not be known.
func ClientOf(connection syscall.RawConn, pid int, connected time.Duration) (c Client) {
	started := StartOf(pid)
	if pid == 0 || started == 0 || started > connected {
		return Client{} // another process has the pid by now
	}
	var socket uint64
	if err := connection.Control(func(fd uintptr) { socket = peerSocket(int(fd)) }); err != nil || !mayBeOpen(socket) {
		return Client{} // it is closed, or in another network namespace, which this daemon cannot see
	}
	c = Client{PID: pid, Started: started, Socket: socket, PIDNamespace: namespace("pid"), NetNamespace: namespace("net")}
	if c.PIDNamespace == 0 || c.NetNamespace == 0 {
		return Client{}
	}
	return c
}

// HasEnded reports whether the process has certainly ended, and no other process has its end of the
// connection: a child inherits that. If both are not certain, it returns false.
func (c Client) HasEnded() bool {
	if c == (Client{}) || namespace("pid") != c.PIDNamespace || namespace("net") != c.NetNamespace || mayBeOpen(c.Socket) {
		return false
	}
	fd, err := OpenIf(c.PID, func(f Facts) error {
		if f.Started != c.Started {
			return ErrNoProcess // another process got the pid
		}
		return nil
	})
	if err == nil {
		Close(fd)
	}
	return errors.Is(err, ErrNoProcess)
}

// namespace returns the inode of a namespace of this process, or 0 if it is not visible. A process and
// a socket keep their namespaces. So if a later namespace has the same inode, they have ended.
func namespace(kind string) uint64 {
	var s unix.Stat_t
	if unix.Stat("/proc/self/ns/"+kind, &s) != nil {
		return 0
	}
	return s.Ino
}

// peerSocket returns the inode of the socket at the other end, or 0 if it is not known.
func peerSocket(fd int) uint64 {
	var s unix.Stat_t
	if unix.Fstat(fd, &s) != nil {
		return 0
	}
	peer, _ := querySocket(s.Ino) // an error means the same as no peer
	return peer
}

// mayBeOpen reports whether any process may have a Unix socket open: the kernel has it, or does not
// answer. It is false for 0.
func mayBeOpen(inode uint64) bool {
	if inode == 0 {
		return false
	}
	_, err := querySocket(inode)
	return !errors.Is(err, unix.ENOENT)
}

// Requests and answers of sock_diag(7) for Unix sockets.
const (
	diagByFamily  = 20 // SOCK_DIAG_BY_FAMILY
	diagShowPeer  = 4  // UDIAG_SHOW_PEER
	diagPeer      = 2  // UNIX_DIAG_PEER
	diagAnswerLen = 16 // the length of the answer without attributes
)

// querySocket asks the kernel for the Unix socket with that inode, in this network namespace, and
// returns the inode of its peer. The error matches unix.ENOENT if there is no such socket.
func querySocket(inode uint64) (peer uint64, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	defer unix.Close(fd)
	if inode > 1<<32-1 {
		return 0, fmt.Errorf("sock_diag: the inode %d has more than 32 bits", inode)
	}
	request := make([]byte, 0, unix.NLMSG_HDRLEN+24)
	request = binary.NativeEndian.AppendUint32(request, uint32(cap(request)))
	request = binary.NativeEndian.AppendUint16(request, diagByFamily)
	request = binary.NativeEndian.AppendUint16(request, unix.NLM_F_REQUEST)
	request = append(request, make([]byte, 8)...)                                                 // sequence, port
	request = append(request, unix.AF_UNIX, 0, 0, 0)                                              // protocol, padding
	for _, v := range []uint32{^uint32(0), uint32(inode), diagShowPeer, ^uint32(0), ^uint32(0)} { // states, inode, show, any cookie
		request = binary.NativeEndian.AppendUint32(request, v)
	}
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT) // the kernel has answered when Sendto returns
	if err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	return readPeer(answer[:n])
}

// readPeer reads the answer of the kernel.
func readPeer(answer []byte) (peer uint64, err error) {
	if len(answer) < unix.NLMSG_HDRLEN+4 {
		return 0, fmt.Errorf("sock_diag: an answer of %d bytes", len(answer))
	}
	switch kind := binary.NativeEndian.Uint16(answer[4:]); kind {
	case unix.NLMSG_ERROR:
		return 0, fmt.Errorf("sock_diag: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:]))))
	case diagByFamily:
	default:
		return 0, fmt.Errorf("sock_diag: an answer of kind %d", kind)
	}
	attributes := answer[min(len(answer), unix.NLMSG_HDRLEN+diagAnswerLen):]
	for len(attributes) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(attributes))
		if size < unix.SizeofNlAttr || size > len(attributes) {
			break
		}
		if binary.NativeEndian.Uint16(attributes[2:]) == diagPeer && size >= unix.SizeofNlAttr+4 {
			return uint64(binary.NativeEndian.Uint32(attributes[unix.SizeofNlAttr:])), nil
		}
		attributes = attributes[min(len(attributes), (size+3)&^3):]
	}
	return 0, nil
}
