package operator

import (
	"crypto/tls"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"lockstep.dev/lockstep/internal/report"
)

// What a client of a server can hold. An API server closes a connection that was idle for 90 s: a server that closed it
// earlier would lose the call that is just being sent.
const (
	headerPatience  = 5 * time.Second // a TLS handshake as well
	requestPatience = 10 * time.Second
	answerPatience  = 25 * time.Second
	idlePatience    = 2 * time.Minute
	mostConnections = 1000
	mostPlain       = 5 * mostConnections // without TLS: a kubelet that gets none restarts the operator
	mostScrapes     = 4
)

// serve adds a server to the manager, unless its address is none. Without secured it serves plain HTTP. All servers are
// made here: those of controller-runtime wait for a body as long as its client likes.
func (o *Options) serve(mgr ctrl.Manager, name, address string, handler http.Handler, secured *tls.Config) error {
	if address == "" || address == off {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve %s: %w", name, err)
	}
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: headerPatience, ReadTimeout: requestPatience, WriteTimeout: answerPatience, IdleTimeout: idlePatience,
		ErrorLog: stdlog.New(&serverLog{log: o.Log, server: name, handshakes: rate.Sometimes{Interval: time.Minute}}, "", 0),
	}
	if secured == nil {
		server.SetKeepAlivesEnabled(false) // connections that are idle would keep the kubelet out
		return mgr.Add(&manager.Server{Name: name, Listener: netutil.LimitListener(listener, mostPlain), Server: server})
	}
	listener = tls.NewListener(netutil.LimitListener(listener, mostConnections), secured)
	return mgr.Add(&manager.Server{Name: name, Listener: listener, Server: server})
}

// serverLog logs what a server reports. Any client can make handshakes fail: they have one line a minute.
type serverLog struct {
	log        logr.Logger
	server     string
	handshakes rate.Sometimes
	failed     atomic.Int64
}

// Write implements io.Writer, for a line of a log.
func (l *serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if !strings.HasPrefix(text, "http: TLS handshake error") {
		l.log.Error(nil, text, "server", l.server)
		return len(line), nil
	}
	report.HandshakeFailed(l.server)
	l.failed.Add(1)
	l.handshakes.Do(func() {
		l.log.Info("TLS handshakes failed", "server", l.server, "count", l.failed.Swap(0), "example", text)
	})
	return len(line), nil
}
