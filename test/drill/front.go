package drill

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// Front stands where the API server calls webhooks, as a Service does: it joins each connection to one of some ports.
type Front struct {
	net.Listener

	mu    sync.Mutex
	ports []int
	calls int
}

// NewFront listens at a port of the loopback interface, and forwards to others.
func NewFront(port int, to ...int) (*Front, error) {
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		return nil, err
	}
	f := &Front{Listener: listener, ports: to}
	go f.serve()
	return f, nil
}

// To changes where later connections are forwarded to.
func (f *Front) To(ports ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ports = ports
}

func (f *Front) serve() {
	for {
		near, err := f.Accept()
		if err != nil {
			return
		}
		go func() {
			far, err := net.Dial("tcp", address(f.next()))
			if err != nil {
				_ = near.Close()
				return
			}
			Join(near, far)
		}()
	}
}

// next returns the ports in turn.
func (f *Front) next() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.ports[f.calls%len(f.ports)]
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Tunnel answers one CONNECT request, as of an API server with an egress, by joining it to an address.
func Tunnel(w http.ResponseWriter, r *http.Request, address string) {
	far, err := net.Dial("tcp", address)
	if r.Method != http.MethodConnect || err != nil {
		http.Error(w, errors.Join(errors.New(r.Method), err).Error(), http.StatusBadGateway)
		return
	}
	near, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = far.Close()
		return
	}
	if _, err := io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		_ = near.Close()
		_ = far.Close()
		return
	}
	Join(near, far)
}

// Join copies in both directions until either side ends.
func Join(near, far net.Conn) {
	var once sync.Once
	end := func() { _, _ = near.Close(), far.Close() }
	go func() { _, _ = io.Copy(near, far); once.Do(end) }()
	_, _ = io.Copy(far, near)
	once.Do(end)
}
