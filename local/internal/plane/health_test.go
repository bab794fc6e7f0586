package plane

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// answering probes a server that gives one answer, in the place of component c.
func answering(t *testing.T, c Component, code int, body string) error {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		w.Write([]byte(body))
	}))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	p := &prober{client: server.Client(), ports: Ports{APIServer: port, EtcdClient: port, ControllerManager: port, Scheduler: port}}
	return p.probe(context.Background(), c)
}

func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		component Component
		code      int
		body      string
		says      string // empty: ready
	}{
		"well":                         {APIServer, 200, "ok", ""},
		"unwell tells the check":       {APIServer, 500, "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok", "[-]etcd failed"},
		"unwell without checks":        {Scheduler, 503, "starting", "starting"},
		"controllers not begun":        {ControllerManager, 200, "[+]ping ok\nhealthz check passed\n", "have not begun"},
		"controllers begun":            {ControllerManager, 200, "[+]job-controller ok\nhealthz check passed\n", ""},
		"nothing said, and that badly": {Etcd, 500, "", "500"},
	} {
		err := answering(t, c.component, c.code, c.body)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
}

func TestUntilKeepsTheLastRealAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	real := errors.New("3 of 5 nodes are ready")
	asked := 0
	err := until(ctx, func(ctx context.Context) error {
		asked++
		if asked == 2 {
			cancel()
			return ctx.Err()
		}
		return real
	})
	if !errors.Is(err, real) {
		t.Errorf("error %v, want %v", err, real)
	}
}
