package drill

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

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
